//! Writing into a cluster: files in one go, under another name until they are complete. Parts are not written yet.
//!
//! Invariant: a file that failed leaves nothing under its name.

use super::{Cluster, Hdfs, listed, path_of};
use crate::counters::InFlight;
use crate::{Counters, Listed, Sink, Upload};
use block::{Error, Kind, Result, Waiting};
use bytes::Bytes;
use hdfs_native::WriteOptions;
use std::sync::Arc;

/// Behind the name of a file that is not complete, as Hadoop's own tools write it.
const COPYING: &str = "._COPYING_";

impl Sink for Hdfs {
    fn put(&self, key: &str, content: Bytes) -> Waiting<()> {
        let (cluster, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move { cluster.put(&key, content).await })
    }

    fn begin(&self, key: &str) -> Waiting<Arc<dyn Upload>> {
        let error = Error::invalid("an object of this size can't be written to hdfs:// yet", self.0.name_of(key));
        Box::pin(std::future::ready(Err(error.hint("write it to a folder, and copy that by hdfs dfs -put"))))
    }

    fn delete(&self, key: &str) -> Waiting<()> {
        let (cluster, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move {
            let (on, path) = cluster.place(&key)?;
            Counters::add(&cluster.counters.writes, 1);
            let gone = cluster.names.ask(&on, |client| {
                let path = path.clone();
                Box::pin(async move { client.delete(&path, false).await })
            });
            match gone.await {
                Err(error) if error.kind == Kind::Missing => Ok(()),
                done => done.map(drop),
            }
        })
    }

    fn find(&self, key: &str) -> Waiting<Listed> {
        let (cluster, key) = (self.0.clone(), key.to_owned());
        Box::pin(async move {
            let (on, path) = cluster.place(&key)?;
            match cluster.find(&path, &on).await? {
                found if found.isdir => Err(Error::missing("this is a folder and no file", on)),
                found => Ok(listed(key, &found)),
            }
        })
    }
}

impl Cluster {
    /// A key as errors name it, and its path.
    fn place(&self, key: &str) -> Result<(String, String)> {
        let on = self.name_of(key);
        match path_of(key) {
            Some(path) => Ok((on, path)),
            None => Err(Error::invalid("HDFS has no files of such names", on).hint("leave out colons and empty steps")),
        }
    }

    async fn put(&self, key: &str, content: Bytes) -> Result<()> {
        let (on, path) = self.place(key)?;
        let _asked = InFlight::begin(&self.counters);
        Counters::add(&self.counters.writes, 1);
        let copying = format!("{path}{COPYING}");
        let written = self.names.ask(&on, |client| {
            let (path, copying, content) = (path.clone(), copying.clone(), content.clone());
            Box::pin(async move {
                let mut file = client.create(&copying, WriteOptions::default().overwrite(true)).await?;
                file.write_bytes(content).await?;
                file.close().await?;
                client.rename(&copying, &path, true).await
            })
        });
        written.await?;
        Counters::add(&self.counters.bytes_written, content.len() as u64);
        Ok(())
    }
}

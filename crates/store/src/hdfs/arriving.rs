//! The body of a read as data nodes deliver it.
//!
//! Invariant: the last bytes of a body stay here until the name node has said once more that the file is what it was.

use super::{Cluster, Object};
use crate::Counters;
use crate::counters::InFlight;
use block::{Error, Kind, Result, SMALL};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, Stream, StreamExt};
use hdfs_native::HdfsError;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

pub struct Arriving {
    cluster: Arc<Cluster>,
    object: Arc<Object>,
    path: String,
    bytes: BoxStream<'static, hdfs_native::Result<Bytes>>,
    /// Bytes that are still to come.
    left: u64,
    /// What has come and may leave.
    checked: VecDeque<Bytes>,
    is_over: bool,
    asked: InFlight,
}

impl Arriving {
    /// A body of so many bytes.
    pub fn new(
        cluster: Arc<Cluster>,
        object: Arc<Object>,
        path: String,
        left: u64,
        bytes: impl Stream<Item = hdfs_native::Result<Bytes>> + Send + 'static,
        asked: InFlight,
    ) -> Arriving {
        let (bytes, checked) = (bytes.boxed(), VecDeque::new());
        Arriving { cluster, object, path, bytes, left, checked, is_over: false, asked }
    }

    /// Take what a small object is, and see that it is of the version that is meant.
    pub async fn begin(&mut self) -> Result<()> {
        let mut taken = 0;
        while taken < SMALL && self.left > 0 {
            let piece = self.next().await?;
            taken += piece.len() as u64;
            self.checked.push_back(piece);
        }
        self.is_over = self.left == 0;
        self.cluster.check(&self.path, &self.object).await
    }

    pub fn into_stream(self) -> BoxStream<'static, Result<Bytes>> {
        stream::try_unfold(self, |mut body| async move { Ok(body.step().await?.map(|piece| (piece, body))) }).boxed()
    }

    async fn step(&mut self) -> Result<Option<Bytes>> {
        if let Some(piece) = self.checked.pop_front() {
            return Ok(Some(piece));
        }
        if self.is_over {
            return Ok(None);
        }
        let piece = self.next().await?;
        if self.left == 0 {
            self.is_over = true;
            self.cluster.check(&self.path, &self.object).await?;
        }
        Ok(Some(piece))
    }

    /// The next piece. Blocks of a file that was replaced or removed are gone soon after, and only the name node says why.
    async fn next(&mut self) -> Result<Bytes> {
        let error = match self.piece().await {
            Err(error) if error.passes() => error,
            done => return done,
        };
        let said = self.cluster.check(&self.path, &self.object).await;
        let says_why = |said: &Error| matches!(said.kind, Kind::Changed | Kind::Missing);
        Err(said.err().filter(says_why).unwrap_or(error))
    }

    /// The next piece from a data node.
    async fn piece(&mut self) -> Result<Bytes> {
        let piece = match AssertUnwindSafe(self.bytes.next()).catch_unwind().await {
            Ok(Some(Ok(piece))) => piece,
            Ok(Some(Err(error))) => return Err(self.failed(&error)),
            Ok(None) => return Err(Error::unavailable("the file ended before its size", &self.object)),
            Err(_panic) => {
                let what = "a data node gave an answer that can't be understood";
                return Err(Error::unavailable(what, &self.object));
            }
        };
        Counters::add(&self.asked.bytes, piece.len() as u64);
        self.left = self
            .left
            .checked_sub(piece.len() as u64)
            .ok_or_else(|| Error::corrupt("a data node gave more than it was asked for", &self.object))?;
        Ok(piece)
    }

    fn failed(&self, error: &HdfsError) -> Error {
        match error {
            HdfsError::IOError(error) => {
                Error::unavailable(format!("a data node can't be reached: {error}"), &self.object)
            }
            error => super::refusal::error(error, &self.cluster.identity, &self.object),
        }
    }
}

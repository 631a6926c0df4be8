//! Whoever answers for blocks. Tiers are sources laid over sources: requests go down, blocks come up.

use crate::{Address, Block, Checksum, Door, Error, Object, ObjectId, Proof, Result, Run};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use std::collections::HashMap;
use std::sync::Arc;

/// Verified blocks of one run, in order, each as soon as it is there; nothing after the first error.
pub type Blocks = BoxStream<'static, Result<Block>>;

/// The blocks of a stream up to the first error, and that.
pub fn until_failed(blocks: impl Stream<Item = Result<Block>> + Send + 'static) -> Blocks {
    let until_failed = blocks.scan(false, |failed, got| {
        let is_over = std::mem::replace(failed, got.is_err());
        std::future::ready((!is_over).then_some(got))
    });
    until_failed.boxed()
}

/// An answer that takes time.
pub type Waiting<T> = BoxFuture<'static, Result<T>>;

/// Answers for the blocks of objects.
pub trait Source: Send + Sync {
    /// The blocks of a run. Dropping the stream gives the request up.
    fn fetch(&self, run: Run) -> Blocks;

    /// What the truth says about all bytes of the object, if it says anything, asked by the credentials of a door.
    fn checksum(&self, object: &Arc<Object>, via: Door) -> Waiting<Option<Checksum>>;

    /// Whether a block lies here, so that no store is asked for it. Who may not wait hears no where nobody can say it at
    /// once.
    fn holds(&self, _address: &Address, _may_wait: bool) -> bool {
        false
    }

    /// Bytes of an object were found wrong: nobody joins what is on its way of it any more.
    fn forget(&self, _object: &Object) {}
}

/// A source of objects held in memory: for tests, demonstrations and ceilings.
#[derive(Default)]
pub struct Fixed {
    objects: HashMap<ObjectId, Bytes>,
}

impl Fixed {
    /// Add an object; its version is the checksum of its content.
    pub fn add(&mut self, key: &str, content: impl Into<Bytes>) -> Arc<Object> {
        let content = content.into();
        let version = format!("{:016x}", crate::crc64::of(&content));
        let object = Object { store: "memory:".into(), key: key.into(), version, size: content.len() as u64 };
        self.objects.insert(object.id(), content);
        Arc::new(object)
    }
}

impl Source for Fixed {
    fn fetch(&self, run: Run) -> Blocks {
        let content = self.objects.get(&run.object.id()).cloned();
        let blocks = run.addresses().map(move |address| {
            let Some(content) = &content else {
                return Err(Error::missing("there is no such object", &*address.object));
            };
            let (start, length) = (address.range().start as usize, address.len());
            Block::verified(address, vec![content.slice(start..start + length)], Proof::Store)
        });
        futures_util::stream::iter(blocks).boxed()
    }

    fn checksum(&self, object: &Arc<Object>, _via: Door) -> Waiting<Option<Checksum>> {
        let checksum = self.objects.get(&object.id()).map(|content| Checksum::Crc64Nvme(crate::crc64::of(content)));
        Box::pin(std::future::ready(Ok(checksum)))
    }
}

#[cfg(all(test, feature = "contract"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fixed_source_keeps_the_promises_of_a_source() {
        crate::contract::run(|fixed| {
            let fixed: Arc<dyn Source> = Arc::new(fixed);
            (fixed, ())
        })
        .await;
    }
}

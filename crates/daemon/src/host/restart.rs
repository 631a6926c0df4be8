//! Another process goes on with all mounts of a node.

use super::Host;
use crate::keeper::Keeper;
use block::{Error, Result};
use std::sync::Arc;

impl Host {
    /// Have what outlives this process held by somebody, who may come later.
    pub fn keep_by(&self, keeper: Arc<Keeper>) {
        self.keeper.get_or_init(|| keeper);
    }

    pub fn keeper(&self) -> Option<&Arc<Keeper>> {
        self.keeper.get()
    }

    /// Ends when this process is to make way for another, that goes on with all mounts.
    pub async fn makes_way(&self) {
        self.restart.notified().await;
    }

    /// Have another process go on, by this program if one is named.
    pub(crate) fn restart(&self, program: Option<&str>) -> Result<()> {
        let refused = |why: String| {
            let error = Error::invalid(
                format!("the mounts of this node would not go on: {why}"),
                self.node.settings().cache.display(),
            );
            Err(error.hint("unmount, and mount again"))
        };
        let keeper = match self.keeper().map(|keeper| (keeper, keeper.who())) {
            None => return refused("a node that is run in the foreground is restarted by whoever runs it".into()),
            Some((_, Err(why))) => return refused(why),
            Some((keeper, Ok(_))) => keeper,
        };
        if self.mounts().iter().any(|mounted| !mounted.goes_on()) {
            return refused("this kernel does not ask again (Linux 6.9 or later does)".into());
        }
        if let Some(program) = program {
            keeper.tell(&format!("X_STOKER_PROGRAM={program}"));
        }
        keeper.tell("RELOADING=1");
        self.restart.notify_one();
        Ok(())
    }
}

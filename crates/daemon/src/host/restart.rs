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

    /// Ends when this process is to make way for another, that goes on with all mounts. The kernel is not being told of names
    /// then: who tells it waits for its readers, and would keep the process from its end.
    pub async fn makes_way(&self) {
        self.restart.notified().await;
        let mounts = self.mounts().clone();
        for mounted in &mounts {
            std::mem::forget(mounted.stop_telling().await);
        }
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
        let (keeper, is_ours) = match self.keeper().map(|keeper| (keeper, keeper.who())) {
            None => return refused("a node that is run in the foreground is restarted by whoever runs it".into()),
            Some((_, Err(why))) => return refused(why),
            Some((keeper, Ok(pid))) => (keeper, pid.is_some()),
        };
        if self.visitors.borrow().closing {
            return refused("it is ending".into());
        }
        if let Some(why) = self.mounts().iter().find_map(|mounted| mounted.ends_with_this_process()) {
            return refused(why.into());
        }
        if let Some(program) = program
            && let Err(errno) = rustix::fs::access(program, rustix::fs::Access::EXEC_OK)
        {
            let error = Error::io("this program can't be run", program, &errno.into());
            return Err(error.hint("call `stoker restart` of a program that the node can run too"));
        }
        // systemd goes by its unit, and by how this process ends.
        if is_ours {
            program.map_or(Ok(()), |program| keeper.tell(&format!("X_STOKER_PROGRAM={program}")))?;
            keeper.tell("RELOADING=1")?;
        }
        self.restart.notify_one();
        Ok(())
    }
}

//! Which file systems are local. Pure: a number in, a word out.
//!
//! Invariant: an unknown file system is local, so that nothing is copied without a reason.

/// Where a file system keeps its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// On this machine: reading through is as fast as it gets.
    Local,
    /// On other machines, or made up by a process: worth keeping.
    Network,
}

/// Magic numbers (`statfs(2)`, `linux/magic.h`) of file systems whose bytes come over a network. FUSE is
/// counted among them: s3fs, gcsfuse, JuiceFS, sshfs, GlusterFS and virtiofs all answer with its number.
const NETWORK: [i64; 18] = [
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x564c,      // NCP
    0x0102_1997, // 9p
    0x0bd0_0bd0, // Lustre
    0x00c3_6400, // Ceph
    0x4750_4653, // GPFS (Storage Scale)
    0x1983_0326, // BeeGFS
    0xaad7_aaea, // PanFS
    0x2003_0528, // OrangeFS
    0x5346_414f, // AFS
    0x7375_7245, // Coda
    0x0116_1970, // GFS2
    0x7461_636f, // OCFS2
    0x786f_4256, // folders shared by VirtualBox
    0x6573_5546, // FUSE
];

impl FileSystem {
    /// The file system that `statfs` gives this number.
    pub fn of(magic: i64) -> FileSystem {
        // Some machines widen the number with its sign.
        let magic = magic & 0xffff_ffff;
        if NETWORK.contains(&magic) { FileSystem::Network } else { FileSystem::Local }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_local_and_networks_are_not() {
        let local = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010, 0];
        for magic in local {
            assert_eq!(FileSystem::of(magic), FileSystem::Local, "{magic:x}");
        }
        for magic in NETWORK {
            assert_eq!(FileSystem::of(magic), FileSystem::Network, "{magic:x}");
        }
        assert_eq!(
            FileSystem::of(i64::from(0xff53_4d42u32.cast_signed())),
            FileSystem::Network,
            "a number with its sign"
        );
    }
}

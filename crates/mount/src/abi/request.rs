//! Bytes from the device into a [`Request`].
//!
//! Invariant: whatever the bytes, decoding ends in a request or in [`Malformed`], never in a panic.

use super::opcode;

/// One request of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The number that the answer must carry; 0 where none is expected.
    pub unique: u64,
    pub node: u64,
    /// The thread that asks, as this process numbers it; 0 where the kernel can't say.
    pub thread: u32,
    pub operation: Operation<'a>,
}

/// What the kernel asks.
#[derive(Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    Init(Init),
    Lookup {
        name: &'a [u8],
    },
    Forget {
        lookups: u64,
    },
    BatchForget(Forgets<'a>),
    Attributes,
    Open {
        flags: u32,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Release {
        handle: u64,
    },
    OpenFolder,
    ReleaseFolder {
        handle: u64,
    },
    List {
        handle: u64,
        offset: u64,
        size: u32,
        plus: bool,
    },
    Space,
    Interrupt {
        unique: u64,
    },
    Destroy,
    /// Anything that would change the data set.
    Modify,
    /// Anything that is not offered; the kernel stops asking after ENOSYS.
    Unknown(u32),
}

/// What the kernel offers in the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u64,
}

/// Bytes that are no request. With a number, the kernel waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub unique: Option<u64>,
}

/// Nodes to forget, with the lookups given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgets<'a>(&'a [u8]);

impl Iterator for Forgets<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let mut fields = Fields(self.0);
        let pair = (fields.u64()?, fields.u64()?);
        self.0 = fields.0;
        Some(pair)
    }
}

impl<'a> Request<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Request<'a>, Malformed> {
        Header::decode(bytes).ok_or(Malformed { unique: None }).and_then(|header| {
            let operation = operation(header.opcode, Fields(header.body));
            let operation = operation.ok_or(Malformed { unique: Some(header.unique) })?;
            Ok(Request { unique: header.unique, node: header.node, thread: header.thread, operation })
        })
    }
}

struct Header<'a> {
    opcode: u32,
    unique: u64,
    node: u64,
    thread: u32,
    body: &'a [u8],
}

impl<'a> Header<'a> {
    fn decode(bytes: &'a [u8]) -> Option<Header<'a>> {
        let mut fields = Fields(bytes);
        let length = fields.u32()? as usize;
        let (opcode, unique, node) = (fields.u32()?, fields.u64()?, fields.u64()?);
        // Caller's uid and gid: access is checked by the kernel.
        fields.skip(8)?;
        let thread = fields.u32()?;
        // The length of extensions.
        fields.skip(4)?;
        let body = bytes.get(HEADER_BYTES..length)?;
        Some(Header { opcode, unique, node, thread, body })
    }
}

const HEADER_BYTES: usize = 40;

fn operation<'a>(code: u32, mut fields: Fields<'a>) -> Option<Operation<'a>> {
    Some(match code {
        opcode::LOOKUP => Operation::Lookup { name: fields.name()? },
        opcode::FORGET => Operation::Forget { lookups: fields.u64()? },
        opcode::GETATTR => Operation::Attributes,
        opcode::OPEN => Operation::Open { flags: fields.u32()? },
        opcode::READ => Operation::Read { handle: fields.u64()?, offset: fields.u64()?, size: fields.u32()? },
        opcode::OPENDIR => Operation::OpenFolder,
        opcode::RELEASEDIR => Operation::ReleaseFolder { handle: fields.u64()? },
        opcode::RELEASE => Operation::Release { handle: fields.u64()? },
        opcode::READDIR | opcode::READDIRPLUS => {
            let (handle, offset, size) = (fields.u64()?, fields.u64()?, fields.u32()?);
            Operation::List { handle, offset, size, plus: code == opcode::READDIRPLUS }
        }
        opcode::STATFS => Operation::Space,
        opcode::INTERRUPT => Operation::Interrupt { unique: fields.u64()? },
        opcode::INIT => Operation::Init(init(fields)?),
        opcode::DESTROY => Operation::Destroy,
        opcode::BATCH_FORGET => {
            let count = fields.u32()? as usize;
            fields.skip(4)?;
            Operation::BatchForget(Forgets(fields.0.get(..count.checked_mul(16)?)?))
        }
        code if modifies(code) => Operation::Modify,
        code => Operation::Unknown(code),
    })
}

fn init(mut fields: Fields<'_>) -> Option<Init> {
    let (major, minor, max_readahead) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let low = fields.u32()?;
    // The second word came with 7.36.
    let high = if u64::from(low) & super::init::EXT != 0 { fields.u32()? } else { 0 };
    Some(Init { major, minor, max_readahead, flags: u64::from(high) << 32 | u64::from(low) })
}

fn modifies(code: u32) -> bool {
    use opcode::*;
    matches!(
        code,
        SETATTR
            | SYMLINK
            | MKNOD
            | MKDIR
            | UNLINK
            | RMDIR
            | RENAME
            | LINK
            | WRITE
            | SETXATTR
            | REMOVEXATTR
            | CREATE
            | FALLOCATE
            | RENAME2
            | COPY_FILE_RANGE
            | TMPFILE
    )
}

/// Fields taken from the front of bytes, as long as there are enough.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*first))
    }

    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*first))
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    /// Up to the closing zero.
    fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        Some(&self.0[..end])
    }
}

//! Sockets: families, types, flags of messages, options, and the structures of calls.

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Local sockets.
pub const AF_UNIX: i32 = 1;
/// No family; dissolves the association of a datagram socket.
pub const AF_UNSPEC: i32 = 0;
/// One past the last family of Linux 6.1.
pub const AF_MAX: i32 = 46;
/// Bytes and no records, in order.
pub const SOCK_STREAM: i32 = 1;
/// Records without a connection.
pub const SOCK_DGRAM: i32 = 2;
/// As `SOCK_DGRAM` for local sockets.
pub const SOCK_RAW: i32 = 3;
/// Records over a connection.
pub const SOCK_SEQPACKET: i32 = 5;
/// One past the last type.
pub const SOCK_MAX: i32 = 11;
/// The type in an argument that carries flags too.
pub const SOCK_TYPE_MASK: i32 = 0xf;
/// Close on exec.
pub const SOCK_CLOEXEC: i32 = 0o2000000;
/// Do not wait.
pub const SOCK_NONBLOCK: i32 = 0o4000;

/// Size of `struct sockaddr_storage`: no address is longer.
pub const ADDRESS_LIMIT: usize = 128;
/// Where the path begins in `struct sockaddr_un`.
pub const UNIX_PATH_OFFSET: usize = 2;
/// Size of `struct sockaddr_un`.
pub const UNIX_ADDRESS_SIZE: usize = 110;

/// Most descriptors of one message.
pub const SCM_MAX_FD: usize = 253;
/// Level of options of all sockets, and of control messages of local ones.
pub const SOL_SOCKET: i32 = 1;
/// Control message: descriptors.
pub const SCM_RIGHTS: i32 = 1;
/// Control message: `struct ucred`.
pub const SCM_CREDENTIALS: i32 = 2;

bitflags! {
    /// `MSG_…`
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MessageFlags: u32 {
        /// Urgent data.
        const OOB = 0x1;
        /// Leave what is received in the queue.
        const PEEK = 0x2;
        /// Do not route.
        const DONTROUTE = 0x4;
        /// Control data were cut off.
        const CTRUNC = 0x8;
        /// Data were cut off; for receiving: tell the true length.
        const TRUNC = 0x20;
        /// Do not wait.
        const DONTWAIT = 0x40;
        /// End of a record.
        const EOR = 0x80;
        /// Wait for all that was asked for.
        const WAITALL = 0x100;
        /// Receive from the queue of errors.
        const ERRQUEUE = 0x2000;
        /// No `SIGPIPE`.
        const NOSIGNAL = 0x4000;
        /// More follows.
        const MORE = 0x8000;
        /// `recvmmsg`: do not wait after the first.
        const WAITFORONE = 0x10000;
        /// Descriptors that are received are closed on exec.
        const CMSG_CLOEXEC = 0x40000000;
        /// What is not named here is passed over.
        const _ = !0;
    }
}

/// Options of level `SOL_SOCKET`.
#[allow(missing_docs, reason = "the names are those of the manual")]
pub mod option {
    pub const SO_DEBUG: i32 = 1;
    pub const SO_REUSEADDR: i32 = 2;
    pub const SO_TYPE: i32 = 3;
    pub const SO_ERROR: i32 = 4;
    pub const SO_DONTROUTE: i32 = 5;
    pub const SO_BROADCAST: i32 = 6;
    pub const SO_SNDBUF: i32 = 7;
    pub const SO_RCVBUF: i32 = 8;
    pub const SO_KEEPALIVE: i32 = 9;
    pub const SO_OOBINLINE: i32 = 10;
    pub const SO_NO_CHECK: i32 = 11;
    pub const SO_PRIORITY: i32 = 12;
    pub const SO_LINGER: i32 = 13;
    pub const SO_BSDCOMPAT: i32 = 14;
    pub const SO_REUSEPORT: i32 = 15;
    pub const SO_PASSCRED: i32 = 16;
    pub const SO_PEERCRED: i32 = 17;
    pub const SO_RCVLOWAT: i32 = 18;
    pub const SO_SNDLOWAT: i32 = 19;
    pub const SO_RCVTIMEO: i32 = 20;
    pub const SO_SNDTIMEO: i32 = 21;
    pub const SO_BINDTODEVICE: i32 = 25;
    pub const SO_ATTACH_FILTER: i32 = 26;
    pub const SO_DETACH_FILTER: i32 = 27;
    pub const SO_PEERNAME: i32 = 28;
    pub const SO_TIMESTAMP: i32 = 29;
    pub const SO_ACCEPTCONN: i32 = 30;
    pub const SO_PEERSEC: i32 = 31;
    pub const SO_SNDBUFFORCE: i32 = 32;
    pub const SO_RCVBUFFORCE: i32 = 33;
    pub const SO_PASSSEC: i32 = 34;
    pub const SO_MARK: i32 = 36;
    pub const SO_PROTOCOL: i32 = 38;
    pub const SO_DOMAIN: i32 = 39;
    pub const SO_RXQ_OVFL: i32 = 40;
    pub const SO_PEEK_OFF: i32 = 42;
    pub const SO_LOCK_FILTER: i32 = 44;
    pub const SO_SELECT_ERR_QUEUE: i32 = 45;
    pub const SO_COOKIE: i32 = 57;
    pub const SO_PEERGROUPS: i32 = 59;
    pub const SO_RCVTIMEO_NEW: i32 = 66;
    pub const SO_SNDTIMEO_NEW: i32 = 67;
}

/// `ioctl` requests of sockets.
#[allow(missing_docs, reason = "the names are those of the manual")]
pub mod request {
    pub const FIOSETOWN: u32 = 0x8901;
    pub const SIOCSPGRP: u32 = 0x8902;
    pub const FIOGETOWN: u32 = 0x8903;
    pub const SIOCGPGRP: u32 = 0x8904;
    pub const SIOCATMARK: u32 = 0x8905;
    pub const SIOCINQ: u32 = 0x541b;
    pub const SIOCOUTQ: u32 = 0x5411;
}

/// `struct msghdr`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MessageHeader {
    /// Address of the address.
    pub name: u64,
    /// Its length.
    pub name_length: i32,
    /// Always zero.
    pub padding0: u32,
    /// Address of the ranges.
    pub vectors: u64,
    /// How many.
    pub vector_count: u64,
    /// Address of the control messages.
    pub control: u64,
    /// Their length.
    pub control_length: u64,
    /// What `recvmsg` says about the message.
    pub flags: u32,
    /// Always zero.
    pub padding1: u32,
}

/// `struct mmsghdr`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ManyMessageHeader {
    /// The message.
    pub header: MessageHeader,
    /// How many bytes were sent or received.
    pub length: u32,
    /// Always zero.
    pub padding: u32,
}

/// `struct cmsghdr`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ControlHeader {
    /// Length with this header.
    pub length: u64,
    /// Who it is for.
    pub level: i32,
    /// What it is.
    pub kind: i32,
}

/// `struct ucred`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct UserCredentials {
    /// Process.
    pub process: i32,
    /// User.
    pub user: u32,
    /// Group.
    pub group: u32,
}

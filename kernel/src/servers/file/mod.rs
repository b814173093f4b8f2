//! Calls of class file, and pipes.
//!
//! | module | calls |
//! |---|---|
//! | `transfer` | read, write and their vectored and positioned kin |
//! | `append` | how what one call appends stays together |
//! | `copy` | sendfile, copy_file_range |
//! | `splice` | splice, tee, vmsplice |
//! | `descriptor` | open, close, dup, pipe, memfd_create |
//! | `control` | fcntl, flock, ioctl |
//! | `status` | stat, statx, statfs, access, readlink |
//! | `change` | mkdir, mknod, link, unlink, rename |
//! | `attributes` | chmod, chown, utimes, truncate, fallocate |
//! | `extended` | setxattr, getxattr, listxattr, removexattr |
//! | `directory` | getdents, lseek, getcwd, chdir, chroot, umask |
//! | `owner` | who is told of files by signal: F_SETOWN, F_NOTIFY |
//! | `notify` | inotify |
//! | `fanotify` | fanotify_init, fanotify_mark, reading of events, and who is asked before files are opened and read |
//! | `poll` | poll, select |
//! | `epoll` | epoll, eventfd |
//! | `asynchronous` | io_setup, io_submit, io_getevents |
//! | `handle` | name_to_handle_at, open_by_handle_at |
//! | `lease` | F_SETLEASE, F_GETLEASE, and who breaks leases |
//! | `mount` | mount, umount2, pivot_root, sync |
//! | `mount_interface` | fsopen, fsconfig, fsmount, fspick, move_mount, open_tree, mount_setattr |
//! | `volumes` | ustat, sysfs, swapon, quotactl, acct |
//!
//! The file system never waits. Where a call has to, `support::ready` waits for the file's readiness
//! with no lock held, and the call tries again.

mod append;
mod asynchronous;
mod attributes;
mod block;
mod change;
mod control;
mod copy;
mod descriptor;
mod directory;
mod epoll;
mod extended;
pub mod fanotify;
mod handle;
mod lease;
mod mount;
mod mount_interface;
mod notify;
mod owner;
mod poll;
mod splice;
mod status;
pub(super) mod support;
mod transfer;
mod volumes;

use alloc::boxed::Box;
use policy::table::number;

use crate::call::{self, Call, SysResult};
use extended::Target;

pub use descriptor::{descriptor_limit, pipe, pipe2};
pub use directory::seek_at_once;
pub use epoll::epoll_wait_at_once;
pub use mount::{close_all, offer, sync_all};
pub use owner::tell as tell_owner;
pub use poll::{continue_poll, poll_at_once, pselect_at_once, select_at_once};
pub use status::{look_at_once, status_at_once};
pub use support::path;
pub use transfer::{pread_at_once, pwrite_at_once, read_at_once, write_at_once};
pub use volumes::acct;

/// Carries out a call of this class.
pub async fn serve(call: &Call) -> SysResult {
    match call.number() {
        number::read => transfer::read(call).await,
        number::write => transfer::write(call).await,
        number::open => descriptor::open(call).await,
        number::close => descriptor::close(call),
        number::stat => status::stat(call, true).await,
        number::fstat => status::fstat(call).await,
        number::lstat => status::stat(call, false).await,
        number::inotify_init => notify::inotify_init(call, 0),
        number::inotify_init1 => notify::inotify_init(call, call.unsigned(0)),
        number::inotify_add_watch => notify::inotify_add_watch(call).await,
        number::inotify_rm_watch => notify::inotify_rm_watch(call),
        number::fanotify_init => fanotify::fanotify_init(call),
        number::fanotify_mark => Box::pin(fanotify::fanotify_mark(call)).await,
        number::poll => poll::poll(call).await,
        number::lseek => directory::lseek(call),
        number::ioctl => control::ioctl(call).await,
        number::pread64 => transfer::pread64(call).await,
        number::pwrite64 => transfer::pwrite64(call).await,
        number::readv => transfer::readv(call).await,
        number::writev => transfer::writev(call).await,
        number::preadv => transfer::preadv(call).await,
        number::pwritev => transfer::pwritev(call).await,
        number::preadv2 => transfer::preadv2(call).await,
        number::pwritev2 => transfer::pwritev2(call).await,
        number::select => poll::select(call).await,
        number::pselect6 => poll::pselect6(call).await,
        number::ppoll => poll::ppoll(call).await,
        number::epoll_create => epoll::epoll_create(call),
        number::epoll_create1 => epoll::epoll_create1(call),
        number::epoll_ctl => epoll::epoll_ctl(call).await,
        number::epoll_wait => epoll::epoll_wait(call).await,
        number::epoll_pwait => epoll::epoll_pwait(call).await,
        number::epoll_pwait2 => epoll::epoll_pwait2(call).await,
        number::timerfd_create => super::time::timerfd_create(call),
        number::timerfd_settime => super::time::timerfd_settime(call).await,
        number::timerfd_gettime => super::time::timerfd_gettime(call).await,
        number::signalfd => epoll::signalfd(call, 0).await,
        number::signalfd4 => epoll::signalfd(call, call.unsigned(3)).await,
        number::eventfd => epoll::eventfd(call, 0),
        number::eventfd2 => epoll::eventfd(call, call.unsigned(1)),
        number::dup => descriptor::dup(call),
        number::dup2 => descriptor::dup2(call),
        number::dup3 => descriptor::dup3(call),
        number::sendfile => copy::sendfile(call).await,
        number::copy_file_range => copy::copy_file_range(call).await,
        number::splice => splice::splice(call).await,
        number::tee => splice::tee(call).await,
        number::vmsplice => splice::vmsplice(call).await,
        number::fcntl => control::fcntl(call).await,
        number::flock => control::flock(call).await,
        number::fsync | number::fdatasync => mount::fsync(call),
        number::sync => {
            Box::pin(sync_all()).await;
            Ok(0)
        }
        number::syncfs => mount::syncfs(call),
        number::sync_file_range => mount::sync_file_range(call),
        number::access => status::access(call).await,
        number::faccessat => status::faccessat(call, 0).await,
        number::faccessat2 => status::faccessat(call, call.unsigned(3)).await,
        number::newfstatat => status::newfstatat(call).await,
        number::statx => status::statx(call).await,
        number::statfs => status::statfs(call).await,
        number::fstatfs => status::fstatfs(call).await,
        number::readlink => status::readlink(call).await,
        number::readlinkat => status::readlinkat(call).await,
        number::creat => descriptor::creat(call).await,
        number::openat => descriptor::openat(call).await,
        number::openat2 => descriptor::openat2(call).await,
        number::close_range => descriptor::close_range(call).await,
        number::memfd_create => descriptor::memfd_create(call).await,
        number::truncate => attributes::truncate(call).await,
        number::ftruncate => attributes::ftruncate(call).await,
        number::fallocate => attributes::fallocate(call).await,
        number::fadvise64 => attributes::fadvise64(call),
        number::readahead => attributes::readahead(call),
        number::chmod => attributes::chmod(call).await,
        number::fchmod => attributes::fchmod(call),
        number::fchmodat => attributes::fchmodat(call, 0).await,
        number::fchmodat2 => attributes::fchmodat(call, call.unsigned(3)).await,
        number::chown => attributes::chown(call, true).await,
        number::lchown => attributes::chown(call, false).await,
        number::fchown => attributes::fchown(call),
        number::fchownat => attributes::fchownat(call).await,
        number::utime => attributes::utime(call).await,
        number::utimes => attributes::utimes(call).await,
        number::futimesat => attributes::futimesat(call).await,
        number::utimensat => attributes::utimensat(call).await,
        number::setxattr => extended::set(call, Target::Path).await,
        number::lsetxattr => extended::set(call, Target::Link).await,
        number::fsetxattr => extended::set(call, Target::Descriptor).await,
        number::getxattr => extended::get(call, Target::Path).await,
        number::lgetxattr => extended::get(call, Target::Link).await,
        number::fgetxattr => extended::get(call, Target::Descriptor).await,
        number::listxattr => extended::list(call, Target::Path).await,
        number::llistxattr => extended::list(call, Target::Link).await,
        number::flistxattr => extended::list(call, Target::Descriptor).await,
        number::removexattr => extended::remove(call, Target::Path).await,
        number::lremovexattr => extended::remove(call, Target::Link).await,
        number::fremovexattr => extended::remove(call, Target::Descriptor).await,
        number::getdents => directory::getdents(call, false).await,
        number::getdents64 => directory::getdents(call, true).await,
        number::getcwd => directory::getcwd(call).await,
        number::chdir => directory::chdir(call).await,
        number::fchdir => directory::fchdir(call),
        number::chroot => directory::chroot(call).await,
        number::umask => directory::umask(call),
        number::rename => change::rename(call).await,
        number::renameat => change::renameat(call, 0).await,
        number::renameat2 => change::renameat(call, call.unsigned(4)).await,
        number::mkdir => change::mkdir(call).await,
        number::mkdirat => change::mkdirat(call).await,
        number::rmdir => change::rmdir(call).await,
        number::link => change::link(call).await,
        number::linkat => change::linkat(call).await,
        number::unlink => change::unlink(call).await,
        number::unlinkat => change::unlinkat(call).await,
        number::symlink => change::symlink(call).await,
        number::symlinkat => change::symlinkat(call).await,
        number::mknod => change::mknod(call).await,
        number::mknodat => change::mknodat(call).await,
        number::mount => mount::mount(call).await,
        number::umount2 => mount::umount2(call).await,
        number::pivot_root => mount::pivot_root(call).await,
        number::fsopen => mount_interface::fsopen(call).await,
        number::fsconfig => Box::pin(mount_interface::fsconfig(call)).await,
        number::fsmount => mount_interface::fsmount(call),
        number::fspick => mount_interface::fspick(call).await,
        number::move_mount => mount_interface::move_mount(call).await,
        number::open_tree => mount_interface::open_tree(call).await,
        number::mount_setattr => mount_interface::mount_setattr(call).await,
        number::io_setup => asynchronous::io_setup(call).await,
        number::io_destroy => asynchronous::io_destroy(call).await,
        number::io_submit => asynchronous::io_submit(call).await,
        number::io_cancel => asynchronous::io_cancel(call).await,
        number::io_getevents => asynchronous::io_getevents(call).await,
        number::io_pgetevents => asynchronous::io_pgetevents(call).await,
        number::name_to_handle_at => handle::name_to_handle_at(call).await,
        number::open_by_handle_at => handle::open_by_handle_at(call).await,
        number::ustat => volumes::ustat(call).await,
        number::sysfs => volumes::sysfs(call).await,
        number::swapon => volumes::swapon(call).await,
        number::swapoff => volumes::swapoff(call).await,
        number::quotactl => volumes::quotactl(call).await,
        number::quotactl_fd => volumes::quotactl_fd(call),
        _ => Err(call::unknown(call.number())),
    }
}

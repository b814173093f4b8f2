//! The mount interface in steps: fsopen, fsconfig, fsmount, fspick, move_mount, open_tree, mount_setattr.
//!
//! `fs::context` keeps the parameters and the order of the steps. A parameter is checked when it is set;
//! a context that makes a file system makes it at `FSCONFIG_CMD_CREATE`.

use abi::Errno;
use abi::fs::mount::*;
use abi::fs::{AT_FDCWD, AtFlags, OpenFlags};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use fs::anonymous::{AnonymousInode, Label};
use fs::context::{Context, LooseTree, Phase, State};
use fs::file::{File, PathFile};
use fs::metadata::Permissions;
use fs::mount::{self as mounts, Mount};
use fs::{Location, NodeKind, OpenFile};

use super::descriptor::install;
use super::mount::{Parameter, check_parameter, make, remount};
use super::support::resolve_or_itself;
use crate::call::{Call, SysResult};
use crate::memory::PAGE;
use crate::process::Capability;

/// Longest name and value of a parameter, the zero included.
const PARAMETER_SIZE: usize = 256;
/// Most bytes of a binary value.
const BINARY_LIMIT: i32 = 1 << 20;
const AT_RECURSIVE: u32 = 0x8000;
/// All attributes that `fsmount` takes.
const ATTRIBUTES: u64 = MOUNT_ATTR_RDONLY
    | MOUNT_ATTR_NOSUID
    | MOUNT_ATTR_NODEV
    | MOUNT_ATTR_NOEXEC
    | MOUNT_ATTR_ATIME
    | MOUNT_ATTR_NODIRATIME
    | MOUNT_ATTR_NOSYMFOLLOW;
/// Bytes of the first version of `struct mount_attr`.
const ATTRIBUTE_SIZE: u64 = 32;

fn require_administrator(call: &Call) -> Result<(), Errno> {
    call.thread.credentials().require(Capability::Administer)
}

/// A string of a parameter; `EINVAL` when it is too long.
async fn string(call: &Call, index: usize, size: usize) -> Result<String, Errno> {
    let bytes = call.user().read_string(call.argument(index), size).await;
    let bytes = bytes.map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        error => error,
    })?;
    String::from_utf8(bytes).map_err(|_| Errno::EINVAL)
}

fn open_context(call: &Call, context: Arc<Context>, closes_on_exec: bool) -> SysResult {
    let permissions = Permissions { mode: 0o600, user: 0, group: 0 };
    let label = Label::Plain("anon_inode:[fscontext]");
    let location = AnonymousInode::location(NodeKind::Anonymous, label, permissions);
    let file = OpenFile::new(context, location, OpenFlags::RDWR)?;
    install(call, file, closes_on_exec)
}

/// `fsopen(type, flags)`
pub async fn fsopen(call: &Call) -> SysResult {
    require_administrator(call)?;
    let flags = call.unsigned(1);
    if flags & !FSOPEN_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let type_name = string(call, 0, PAGE as usize).await?;
    if !super::mount::is_known(&type_name) {
        return Err(Errno::ENODEV);
    }
    open_context(call, Context::new(&type_name, None), flags & FSOPEN_CLOEXEC != 0)
}

/// `fspick(directory, path, flags)`
pub async fn fspick(call: &Call) -> SysResult {
    require_administrator(call)?;
    let flags = call.unsigned(2);
    let known = FSPICK_CLOEXEC | FSPICK_SYMLINK_NOFOLLOW | FSPICK_NO_AUTOMOUNT | FSPICK_EMPTY_PATH;
    if flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let follow = flags & FSPICK_SYMLINK_NOFOLLOW == 0;
    let may_be_empty = flags & FSPICK_EMPTY_PATH != 0;
    let (location, _) = resolve_or_itself(call, call.int(0), 1, follow, may_be_empty).await?;
    if !location.is_mount_root() {
        return Err(Errno::EINVAL);
    }
    let type_name = location.mount.file_system().type_name();
    let context = Context::new(type_name, Some(location.mount));
    open_context(call, context, flags & FSPICK_CLOEXEC != 0)
}

/// Checks which arguments a command of `fsconfig` takes.
fn check_arguments(call: &Call) -> Result<(), Errno> {
    let (has_key, has_value) = (call.argument(2) != 0, call.argument(3) != 0);
    let other = call.int(4);
    let fits = match call.unsigned(1) {
        FSCONFIG_SET_FLAG => has_key && !has_value && other == 0,
        FSCONFIG_SET_STRING => has_key && has_value && other == 0,
        FSCONFIG_SET_BINARY => has_key && has_value && (1..=BINARY_LIMIT).contains(&other),
        FSCONFIG_SET_PATH | FSCONFIG_SET_PATH_EMPTY => {
            has_key && has_value && (other == AT_FDCWD || other >= 0)
        }
        FSCONFIG_SET_FD => has_key && !has_value && other >= 0,
        FSCONFIG_CMD_CREATE | FSCONFIG_CMD_RECONFIGURE => !has_key && !has_value && other == 0,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    if fits { Ok(()) } else { Err(Errno::EINVAL) }
}

fn context(file: &Arc<OpenFile>) -> Result<&Context, Errno> {
    file.file().as_any().downcast_ref().ok_or(Errno::EINVAL)
}

/// `fsconfig(context, command, key, value, other)`
pub async fn fsconfig(call: &Call) -> SysResult {
    if call.int(0) < 0 {
        return Err(Errno::EINVAL);
    }
    check_arguments(call)?;
    let file = super::support::usable(call, 0)?;
    let context = context(&file)?;
    match call.unsigned(1) {
        FSCONFIG_CMD_CREATE => create(call, context).await,
        FSCONFIG_CMD_RECONFIGURE => reconfigure(call, context).await,
        command => set_parameter(call, context, command).await,
    }
}

async fn set_parameter(call: &Call, context: &Context, command: u32) -> SysResult {
    let key = string(call, 2, PARAMETER_SIZE).await?;
    let value = match command {
        FSCONFIG_SET_FLAG => Parameter::Flag,
        FSCONFIG_SET_STRING => Parameter::Text(string(call, 3, PARAMETER_SIZE).await?),
        FSCONFIG_SET_FD => {
            call.file(4)?;
            Parameter::Other
        }
        FSCONFIG_SET_BINARY => {
            let length = usize::try_from(call.int(4)).map_err(|_| Errno::EINVAL)?;
            call.user().read_vector(call.argument(3), length).await?;
            Parameter::Other
        }
        _ => {
            let path = super::support::path(call, 3).await?;
            if path.is_empty() && command == FSCONFIG_SET_PATH {
                return Err(Errno::ENOENT);
            }
            Parameter::Other
        }
    };
    context.with(|state| {
        state.begin_parameter()?;
        take_parameter(&context.type_name, state, &key, &value)
    })
}

/// Keeps one parameter: one that every file system has, or one of this type.
fn take_parameter(type_name: &str, state: &mut State, key: &str, value: &Parameter) -> SysResult {
    match key {
        "ro" => state.is_read_only = Some(true),
        "rw" => state.is_read_only = Some(false),
        // Everything is in memory, or as the host keeps it.
        "sync" | "async" | "dirsync" | "lazytime" | "nolazytime" | "mand" | "nomand" => {}
        "source" => {
            let Parameter::Text(source) = value else {
                state.complain(format!("e {type_name}: Non-string source"));
                return Err(Errno::EINVAL);
            };
            if state.source.is_some() {
                state.complain(format!("e {type_name}: Multiple sources"));
                return Err(Errno::EINVAL);
            }
            state.source = Some(source.clone());
        }
        _ => match check_parameter(type_name, key, value) {
            Ok(option) => state.add_option(&option)?,
            Err(is_known) => {
                let reason = if is_known { "Bad value for" } else { "Unknown parameter" };
                state.complain(format!("e {type_name}: {reason} '{key}'"));
                return Err(Errno::EINVAL);
            }
        },
    }
    Ok(0)
}

async fn create(call: &Call, context: &Context) -> SysResult {
    context.with(|state| state.begin(Phase::Creating))?;
    let (options, source) =
        context.with(|state| (state.options.clone(), state.source.clone().unwrap_or_default()));
    let is_read_only = context.with(|state| state.is_read_only == Some(true));
    let made = match require_administrator(call) {
        Ok(()) => make(call, &context.type_name, &source, &options, is_read_only).await,
        Err(error) => Err(error),
    };
    context.with(|state| match made {
        Ok(file_system) => {
            state.made = Some(file_system);
            state.phase = Phase::Made;
            Ok(0)
        }
        Err(error) => {
            state.phase = Phase::Failed;
            Err(error)
        }
    })
}

async fn reconfigure(call: &Call, context: &Context) -> SysResult {
    context.with(|state| state.begin(Phase::Changing))?;
    let (options, is_read_only) = context.with(|state| (state.options.clone(), state.is_read_only));
    let change = || {
        require_administrator(call)?;
        let mount = context.mount.as_ref().ok_or(Errno::EINVAL)?;
        let read_only = match is_read_only {
            Some(true) => MS_RDONLY,
            Some(false) => 0,
            None => mount.flags() & MS_RDONLY,
        };
        let flags = mount.flags() & !MS_RDONLY | read_only;
        remount(&Location::root_of(mount), flags, &options)
    };
    let result = fs::pending::complete(change).await;
    context.with(|state| match result {
        Ok(_) => state.end(Phase::Idle),
        Err(_) => state.phase = Phase::Failed,
    });
    result
}

/// The flags of a mount that these attributes mean, access times left out.
fn plain_flags(attributes: u64) -> u64 {
    let same = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    let mut flags = attributes & same;
    if attributes & MOUNT_ATTR_NODIRATIME != 0 {
        flags |= MS_NODIRATIME;
    }
    if attributes & MOUNT_ATTR_NOSYMFOLLOW != 0 {
        flags |= MS_NOSYMFOLLOW;
    }
    flags
}

/// The flag that the choice about access times means.
fn time_flags(attributes: u64) -> Result<u64, Errno> {
    match attributes & MOUNT_ATTR_ATIME {
        MOUNT_ATTR_RELATIME => Ok(MS_RELATIME),
        MOUNT_ATTR_NOATIME => Ok(MS_NOATIME),
        MOUNT_ATTR_STRICTATIME => Ok(MS_STRICTATIME),
        _ => Err(Errno::EINVAL),
    }
}

/// A descriptor of the top of a loose tree.
fn open_loose(call: &Call, mount: Arc<Mount>, closes_on_exec: bool) -> SysResult {
    let location = Location::root_of(&mount);
    let file = OpenFile::new(LooseTree::new(mount), location, OpenFlags::PATH)?;
    install(call, file, closes_on_exec)
}

/// `fsmount(context, flags, attributes)`
pub fn fsmount(call: &Call) -> SysResult {
    require_administrator(call)?;
    let (flags, attributes) = (call.unsigned(1), u64::from(call.unsigned(2)));
    if flags & !FSMOUNT_CLOEXEC != 0 || attributes & !ATTRIBUTES != 0 {
        return Err(Errno::EINVAL);
    }
    let times = time_flags(attributes)?;
    let file = super::support::usable(call, 0)?;
    let context = context(&file)?;
    let mount = context.with(|state| {
        if context.mount.is_none() && state.made.is_none() {
            return Err(Errno::EINVAL);
        }
        if state.phase != Phase::Made {
            return Err(Errno::EBUSY);
        }
        let made = state.made.clone().ok_or(Errno::EINVAL)?;
        let read_only = if state.is_read_only == Some(true) { MS_RDONLY } else { 0 };
        let source = state.source.as_deref().unwrap_or("none");
        let mount = mounts::loose(made, source, plain_flags(attributes) | times | read_only);
        state.end(Phase::Idle);
        Ok(mount)
    })?;
    open_loose(call, mount, flags & FSMOUNT_CLOEXEC != 0)
}

/// `open_tree(directory, path, flags)`
pub async fn open_tree(call: &Call) -> SysResult {
    let flags = call.unsigned(2);
    let at = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
    let close_on_exec = OpenFlags::CLOEXEC.bits();
    let is_copy = flags & OPEN_TREE_CLONE != 0;
    let is_recursive = flags & AT_RECURSIVE != 0;
    if flags & !(at.bits() | AT_RECURSIVE | OPEN_TREE_CLONE | close_on_exec) != 0
        || (is_recursive && !is_copy)
    {
        return Err(Errno::EINVAL);
    }
    if is_copy {
        require_administrator(call)?;
    }
    let flags_of_path = AtFlags::from_bits_truncate(flags);
    let follow = !flags_of_path.contains(AtFlags::SYMLINK_NOFOLLOW);
    let may_be_empty = flags_of_path.contains(AtFlags::EMPTY_PATH);
    let (location, _) = resolve_or_itself(call, call.int(0), 1, follow, may_be_empty).await?;
    if is_copy {
        let tree = mounts::copy(&location, is_recursive);
        return open_loose(call, tree, flags & close_on_exec != 0);
    }
    let place: Arc<dyn File> = Arc::new(PathFile);
    let file = OpenFile::new(place, location, OpenFlags::PATH)?;
    install(call, file, flags & close_on_exec != 0)
}

/// `move_mount(from_directory, from_path, to_directory, to_path, flags)`
pub async fn move_mount(call: &Call) -> SysResult {
    require_administrator(call)?;
    let flags = call.unsigned(4);
    if flags & !MOVE_MOUNT_MASK != 0 {
        return Err(Errno::EINVAL);
    }
    let is_set = |flag| flags & flag != 0;
    let (follow, may_be_empty) = (is_set(MOVE_MOUNT_F_SYMLINKS), is_set(MOVE_MOUNT_F_EMPTY_PATH));
    let (from, _) = resolve_or_itself(call, call.int(0), 1, follow, may_be_empty).await?;
    let (follow, may_be_empty) = (is_set(MOVE_MOUNT_T_SYMLINKS), is_set(MOVE_MOUNT_T_EMPTY_PATH));
    let (to, _) = resolve_or_itself(call, call.int(2), 3, follow, may_be_empty).await?;
    if is_set(MOVE_MOUNT_SET_GROUP) {
        // Mounts are in no groups: nothing spreads.
        return Err(Errno::EINVAL);
    }
    let is_directory = |place: &Location| place.inode.kind() == NodeKind::Directory;
    if is_directory(&from) != is_directory(&to) {
        return Err(Errno::EINVAL);
    }
    mounts::relocate(&from, &to, &call.thread.directory().root())?;
    Ok(0)
}

/// What `mount_setattr` changes: flags that go, and flags that come.
fn changes(set: u64, clear: u64) -> Result<(u64, u64), Errno> {
    if (set | clear) & !(ATTRIBUTES | MOUNT_ATTR_IDMAP) != 0 {
        return Err(Errno::EINVAL);
    }
    let mut gone = plain_flags(clear);
    let mut come = plain_flags(set);
    match clear & MOUNT_ATTR_ATIME {
        MOUNT_ATTR_ATIME => {
            gone |= MS_RELATIME | MS_NOATIME | MS_STRICTATIME;
            come |= time_flags(set)?;
        }
        0 if set & MOUNT_ATTR_ATIME == 0 => {}
        _ => return Err(Errno::EINVAL),
    }
    Ok((gone, come))
}

/// `mount_setattr(directory, path, flags, attributes, size)`
pub async fn mount_setattr(call: &Call) -> SysResult {
    let flags = call.unsigned(2);
    let at = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
    if flags & !(at.bits() | AT_RECURSIVE) != 0 {
        return Err(Errno::EINVAL);
    }
    let size = call.argument(4);
    if size > PAGE {
        return Err(Errno::E2BIG);
    }
    if size < ATTRIBUTE_SIZE {
        return Err(Errno::EINVAL);
    }
    require_administrator(call)?;
    let length = usize::try_from(size).map_err(|_| Errno::E2BIG)?;
    let bytes = call.user().read_vector(call.argument(3), length).await?;
    if bytes.iter().skip(ATTRIBUTE_SIZE as usize).any(|&byte| byte != 0) {
        return Err(Errno::E2BIG);
    }
    let mut words =
        bytes.chunks_exact(8).map(|word| word.try_into().map(u64::from_ne_bytes).unwrap_or(0));
    let mut next = || words.next().unwrap_or(0);
    let (set, clear, propagation, user_namespace) = (next(), next(), next(), next());
    if set | clear | propagation == 0 {
        return Ok(0);
    }
    let kinds = MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE;
    if propagation & !kinds != 0 || propagation.count_ones() > 1 {
        return Err(Errno::EINVAL);
    }
    let (gone, come) = changes(set, clear)?;
    if (set | clear) & MOUNT_ATTR_IDMAP != 0 {
        if clear & MOUNT_ATTR_IDMAP != 0 {
            return Err(Errno::EINVAL);
        }
        let descriptor = i32::try_from(user_namespace).map_err(|_| Errno::EINVAL)?;
        call.thread.files().get(descriptor)?;
        // There are no user namespaces.
        return Err(Errno::EINVAL);
    }
    let flags_of_path = AtFlags::from_bits_truncate(flags);
    let follow = !flags_of_path.contains(AtFlags::SYMLINK_NOFOLLOW);
    let may_be_empty = flags_of_path.contains(AtFlags::EMPTY_PATH);
    let (location, _) = resolve_or_itself(call, call.int(0), 1, follow, may_be_empty).await?;
    if !location.is_mount_root() {
        return Err(Errno::EINVAL);
    }
    let is_recursive = flags & AT_RECURSIVE != 0;
    let mounts = if is_recursive { location.mount.tree() } else { alloc::vec![location.mount] };
    let becomes_read_only = come & MS_RDONLY != 0;
    if becomes_read_only && mounts.iter().any(|mount| !mount.is_read_only() && mount.has_writers())
    {
        return Err(Errno::EBUSY);
    }
    for mount in mounts {
        mount.set_flags(mount.flags() & !gone | come);
    }
    Ok(0)
}

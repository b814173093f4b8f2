//! Files: open flags, modes, stat, statx, statfs, directory entries, poll.

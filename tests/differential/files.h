/* Operations on files, directories and descriptors. */
#ifndef FERRY_TESTS_DIFFERENTIAL_FILES_H
#define FERRY_TESTS_DIFFERENTIAL_FILES_H

#include "common.h"

static void do_open(void)
{
    static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR | O_CREAT, O_WRONLY | O_CREAT, O_RDWR | O_CREAT};
    static const int more[] = {0, 0, 0, O_TRUNC, O_EXCL, O_APPEND, O_DIRECTORY, O_NOFOLLOW, O_CLOEXEC, O_PATH};
    static const int permissions[] = {0644, 0600, 0755, 0400, 0, 06755};
    int slot = a_slot(), flags = modes[below(7)] | more[below(10)] | more[below(10)];
    int mode = permissions[below(6)];
    const char *name = a_name();
    /* O_PATH looks at few flags, and of O_CREAT with O_DIRECTORY each version of Linux thinks otherwise. */
    if (flags & O_PATH)
        flags &= O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    if ((flags & O_CREAT) && (flags & O_DIRECTORY))
        flags &= ~O_DIRECTORY;
    int descriptor = open(name, flags | O_NONBLOCK, mode);
    tell("open %s %#o %#o -> slot %d: %ld", name, flags, mode, slot, outcome(descriptor));
    keep(slot, descriptor);
}

static void do_close(void)
{
    int slot = an_open_slot();
    tell("close slot %d: %ld", slot, outcome(close(slots[slot])));
    slots[slot] = -1;
}

static void do_read(void)
{
    int slot = an_open_slot();
    long length = a_length(slots[slot]), offset = an_offset(), result;
    memset(buffer, 0, BUFFER);
    int kind = (int)below(4);
    struct iovec parts[2] = {{buffer, (size_t)length / 3}, {buffer + length / 3, (size_t)(length - length / 3)}};
    if (kind == 0)
        result = pread(slots[slot], buffer, (size_t)length, offset);
    else if (kind == 1)
        result = readv(slots[slot], parts, 2);
    else
        result = read(slots[slot], buffer, (size_t)length);
    long got = outcome(result);
    tell("read(%d) slot %d %ld at %ld: %ld %08x", kind, slot, length, offset, got, sum_of(buffer, result < 0 ? 0 : result));
}

static void do_write(void)
{
    int slot = an_open_slot();
    long length = a_length(slots[slot]), offset = an_offset(), result;
    /* An empty record in the queue of a socket that closes counts as unread data, or since 6.15 not. */
    if (length == 0 && is_socket(slots[slot]))
        length = 1;
    fill(length);
    int kind = (int)below(4);
    struct iovec parts[2] = {{buffer, (size_t)length / 3}, {buffer + length / 3, (size_t)(length - length / 3)}};
    if (kind == 0)
        result = pwrite(slots[slot], buffer, (size_t)length, offset);
    else if (kind == 1)
        result = writev(slots[slot], parts, 2);
    else
        result = write(slots[slot], buffer, (size_t)length);
    tell("write(%d) slot %d %ld at %ld: %ld", kind, slot, length, offset, sent(result));
}

static void do_bad_memory(void)
{
    /* The end of the memory that may be read is in the middle of what is asked for. */
    static unsigned char *edge;
    if (!edge) {
        edge = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(edge + PAGE, PAGE, PROT_NONE);
    }
    int slot = an_open_slot(), writes = (int)below(2);
    /* What else is wrong comes before bad memory, or after it. */
    if (!is_regular(slots[slot]))
        return;
    /* Since 6.15 a write beyond the end that finds no byte makes the file longer all the same. */
    struct stat status;
    if (writes && (fstat(slots[slot], &status) == -1 || lseek(slots[slot], 0, SEEK_CUR) > status.st_size))
        writes = 0;
    long before = below(3) * 50, length = before ? before : 100;
    unsigned char *at = edge + PAGE - before;
    if (before == 0)
        at = below(2) ? NULL : (unsigned char *)(1ul << 62);
    long result = writes ? write(slots[slot], at, (size_t)length) : read(slots[slot], at, (size_t)length);
    tell("%s slot %d with %ld bytes that are there: %ld", writes ? "write" : "read", slot, before, outcome(result));
}

static void do_seek(void)
{
    int slot = an_open_slot(), whence = (int)below(6);
    long offset = an_offset();
    /* Whether room that nobody has written to is data is the file system's own affair. */
    if (account->has_room && whence > SEEK_END)
        whence = SEEK_CUR;
    tell("lseek slot %d %ld %d: %ld", slot, offset, whence, outcome(lseek(slots[slot], offset, whence)));
}

static void do_size(void)
{
    int slot = an_open_slot(), kind = (int)below(4);
    long offset = an_offset(), length = an_offset(), result;
    const char *name = a_name();
    static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE};
    int mode = modes[below(4)];
    if (kind == 0)
        result = truncate(name, offset);
    else if (kind == 1)
        result = fallocate(slots[slot], mode, offset, length), account->has_room |= result == 0;
    else
        result = ftruncate(slots[slot], offset);
    tell("size(%d) slot %d %s mode %d %ld %ld: %ld", kind, slot, name, mode, offset, length, outcome(result));
}

static void do_names(void)
{
    const char *one = a_name(), *other = a_name();
    unsigned kind = below(12);
    long result;
    char target[64] = "";
    switch (kind) {
    case 0: case 1: result = mkdir(below(2) ? "d" : one, 0755); break;
    case 2: result = rmdir(one); break;
    case 3: case 4: result = unlink(one); break;
    case 5: result = link(one, other); break;
    case 6: result = symlink(below(2) ? "d" : other, below(2) ? "l" : one); break;
    case 7: result = rename(one, other); break;
    case 8: result = syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, below(4)); break;
    case 9: result = readlink(one, target, below(2) ? 40 : 1); break;
    case 10: result = mkfifo(one, 0600); break;
    default: result = unlinkat(AT_FDCWD, one, below(2) ? AT_REMOVEDIR : 0); break;
    }
    tell("names(%u) %s %s: %ld %s", kind, one, other, outcome(result), target);
}

static void do_permissions(void)
{
    static const unsigned modes[] = {0644, 0, 0755, 04755, 02755, 01777, 0444, 07777};
    unsigned mode = modes[below(8)], kind = below(4);
    const char *name = a_name();
    int slot = an_open_slot();
    long result;
    /* Since 6.16 the mode of a file without a name cannot be set. */
    if (kind == 1 && !is_regular(slots[slot]))
        kind = 0;
    if (kind == 0)
        result = chmod(name, mode);
    else if (kind == 1)
        result = fchmod(slots[slot], mode);
    else if (kind == 2)
        result = faccessat(AT_FDCWD, name, (int)(mode & 7), below(2) ? AT_EACCESS : 0);
    else
        result = (long)umask(mode & 0777);
    tell("permissions(%u) %s slot %d %#o: %ld", kind, name, slot, mode, outcome(result));
}

static void tell_status(const char *what, long result, const struct stat *status)
{
    if (result == -1) {
        tell("%s: %ld", what, outcome(result));
        return;
    }
    /* The size of a directory is the file system's own affair. */
    long size = S_ISDIR(status->st_mode) ? 0 : (long)status->st_size;
    tell("%s: mode %#o links %lu size %ld", what, status->st_mode, (unsigned long)status->st_nlink, size);
}

static void do_status(void)
{
    struct stat status;
    char what[80];
    const char *name = a_name();
    int slot = an_open_slot();
    long result;
    unsigned kind = below(3);
    if (kind == 0)
        result = stat(name, &status);
    else if (kind == 1)
        result = lstat(name, &status);
    else
        result = fstat(slots[slot], &status);
    snprintf(what, sizeof what, "stat(%u) %s slot %d", kind, name, slot);
    if (result == 0 && kind == 2 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
        status.st_nlink = 1;
    tell_status(what, result, &status);
}

static void do_times(void)
{
    struct timespec times[2] = {{1000 + below(5), below(1000)}, {2000 + below(5), UTIME_OMIT}};
    if (below(2))
        times[1].tv_nsec = 7;
    if (below(8) == 0)
        times[0].tv_nsec = 2000000000;
    const char *name = a_name();
    int flags = below(2) ? AT_SYMLINK_NOFOLLOW : 0;
    long result = outcome(utimensat(AT_FDCWD, name, times, flags));
    struct stat status = {0};
    if (result == 0)
        fstatat(AT_FDCWD, name, &status, flags);
    tell("times %s: %ld, accessed %ld.%ld", name, result, (long)status.st_atim.tv_sec, (long)status.st_atim.tv_nsec);
}

static int by_name(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void do_list(void)
{
    const char *name = below(2) ? "." : a_name();
    DIR *directory = opendir(*name ? name : ".");
    if (!directory) {
        tell("list %s: %d", name, -errno);
        return;
    }
    char text[256] = "", *names[32];
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) && count < 32;) {
        names[count] = malloc(strlen(entry->d_name) + 8);
        sprintf(names[count++], "%s/%d", entry->d_name, entry->d_type);
    }
    closedir(directory);
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 0; i < count; i++) {
        strcat(strcat(text, " "), names[i]);
        free(names[i]);
    }
    tell("list %s:%s", name, text);
}

static void do_descriptor(void)
{
    int slot = an_open_slot(), other = a_slot();
    unsigned kind = below(9);
    long result;
    int number = -1;
    /* Files without a name share one inode on Linux, and what is locked of it. */
    if (kind == 7 && !is_regular(slots[slot]))
        kind = 4;
    switch (kind) {
    case 0: keep(other, number = dup(slots[slot])); result = number; break;
    case 1: result = number = fcntl(slots[slot], F_DUPFD_CLOEXEC, 20 + below(5)); keep(other, number); break;
    case 2: result = fcntl(slots[slot], F_GETFL); break;
    case 3: result = fcntl(slots[slot], F_SETFL, O_NONBLOCK | (below(2) ? O_APPEND : 0)); break;
    case 4: result = fcntl(slots[slot], F_GETFD); break;
    case 5: result = fcntl(slots[slot], F_SETFD, below(3)); break;
    case 6: result = dup3(slots[slot], slots[other] == -1 ? 60 : slots[other], below(2) ? O_CLOEXEC : 0); 
        if (result != -1 && slots[other] == -1)
            slots[other] = 60;
        break;
    case 7: result = flock(slots[slot], LOCK_NB | (below(2) ? LOCK_EX : below(2) ? LOCK_SH : LOCK_UN)); break;
    default: {
        int waiting = -1;
        result = ioctl(slots[slot], FIONREAD, &waiting);
        if (result == 0)
            result = waiting;
    }
    }
    tell("descriptor(%u) slot %d %d: %ld", kind, slot, other, outcome(result));
}

static void do_lock(void)
{
    struct flock lock = {.l_type = (short)below(3), .l_whence = (short)below(3), .l_start = an_offset(), .l_len = an_offset()};
    int slot = an_open_slot();
    static const int commands[] = {F_SETLK, F_GETLK, F_OFD_SETLK, F_OFD_GETLK};
    int command = commands[below(4)];
    /* Files without a name share one inode on Linux, and their locks; since 6.4 one may ask for no lock. */
    if (!is_regular(slots[slot]) || command == F_OFD_GETLK)
        command = F_GETLK;
    if (!is_regular(slots[slot]))
        return;
    long result = fcntl(slots[slot], command, &lock);
    long got = outcome(result);
    tell("lock slot %d command %d: %ld type %d", slot, command, got, result == 0 ? lock.l_type : -1);
}

static void do_make(void)
{
    int slot = a_slot(), other = (slot + 1 + (int)below(SLOTS - 1)) % SLOTS, ends[2] = {-1, -1};
    unsigned kind = below(6);
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    long result;
    if (kind == 0)
        result = ends[0] = (int)syscall(SYS_memfd_create, "m", below(4));
    else if (kind == 1)
        result = ends[0] = eventfd(below(5), EFD_NONBLOCK | (below(2) ? EFD_SEMAPHORE : 0));
    else if (kind == 2)
        result = ends[0] = open(".", O_TMPFILE | O_RDWR, 0600);
    else if (kind == 3)
        result = socketpair(AF_UNIX, types[below(3)] | SOCK_NONBLOCK, 0, ends);
    else
        result = pipe2(ends, O_NONBLOCK | (below(2) ? O_CLOEXEC : 0));
    tell("make(%u) slots %d %d: %ld", kind, slot, other, outcome(result));
    keep(slot, ends[0]);
    keep(other, ends[1]);
}

static void do_move(void)
{
    int slot = an_open_slot(), other = an_open_slot();
    unsigned kind = below(4);
    long length = below(2) ? 100 : 512, offset = below(300), result;
    /* One file as both ends has a position that is moved twice, in some order. */
    if (slot == other || !is_regular(slots[kind == 2 ? other : slot]) || is_same_file(slots[slot], slots[other]))
        return;
    if (kind == 0)
        result = splice(slots[slot], NULL, slots[other], NULL, (size_t)length, SPLICE_F_NONBLOCK);
    else if (kind == 1)
        result = tee(slots[slot], slots[other], (size_t)length, SPLICE_F_NONBLOCK);
    else if (kind == 2)
        result = sendfile(slots[slot], slots[other], below(2) ? &offset : NULL, (size_t)length);
    else
        result = copy_file_range(slots[slot], below(2) ? &offset : NULL, slots[other], NULL, (size_t)length, 0);
    tell("move(%u) slot %d %d %ld: %ld, offset %ld", kind, slot, other, length, sent(result), offset);
}

static void do_socket(void)
{
    int slot = an_open_slot();
    unsigned kind = below(4);
    static const int flags[] = {0, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, MSG_PEEK | MSG_TRUNC, MSG_CTRUNC};
    int flag = flags[below(6)] | MSG_DONTWAIT | MSG_NOSIGNAL;
    long length = below(2) ? 64 : 7, result;
    memset(buffer, 0, 100);
    if (kind == 0) {
        fill(length);
        result = send(slots[slot], buffer, (size_t)length, flag & ~(MSG_PEEK | MSG_TRUNC | MSG_WAITALL | MSG_CTRUNC));
    } else if (kind == 1) {
        result = shutdown(slots[slot], (int)below(4));
    } else {
        result = recv(slots[slot], buffer, (size_t)length, flag & ~MSG_CTRUNC);
    }
    long got = kind == 0 ? sent(result) : outcome(result);
    tell("socket(%u) slot %d %ld %#x: %ld %08x", kind, slot, length, flag, got,
         kind > 1 && result > 0 ? sum_of(buffer, result < length ? result : length) : 0);
}

static void do_watch(void)
{
    struct pollfd entries[4];
    char text[80] = "";
    for (int i = 0; i < 4; i++) {
        entries[i] = (struct pollfd){slots[an_open_slot()], POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0};
    }
    long result = poll(entries, 4, 0);
    for (int i = 0; i < 4; i++)
        sprintf(text + strlen(text), " %#x", entries[i].revents);
    tell("poll: %ld%s", outcome(result), text);
}

static void do_epoll(void)
{
    static int instance = -1;
    if (instance == -1)
        instance = fcntl(epoll_create1(0), F_DUPFD, 200);
    int slot = an_open_slot();
    unsigned kind = below(5);
    struct epoll_event event = {(below(2) ? EPOLLIN : EPOLLOUT) | (below(3) ? 0 : EPOLLET) | (below(3) ? 0 : EPOLLONESHOT), {.u32 = (unsigned)slot}};
    if (kind < 3) {
        static const int operations[] = {EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
        tell("epoll_ctl(%u) slot %d %#x: %ld", kind, slot, event.events,
             outcome(epoll_ctl(instance, operations[kind], slots[slot], &event)));
        return;
    }
    /* Which come first is nobody's promise. */
    struct epoll_event events[SLOTS * 2];
    long count = epoll_wait(instance, events, SLOTS * 2, 0);
    unsigned all = 0;
    for (long i = 0; i < count; i++)
        all += (events[i].events + 1) * (events[i].data.u32 + 1);
    tell("epoll_wait: %ld %u", outcome(count), all);
}

#endif

//! Time: clocks, timespec, timeval, itimerval.

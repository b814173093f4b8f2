//! Processes: clone flags, wait options, rusage, limits, uname, sysinfo, auxiliary vector.

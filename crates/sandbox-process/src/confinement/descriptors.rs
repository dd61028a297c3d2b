//! File descriptors that programs inherit.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};

/// Lets the next program inherit a descriptor.
pub(crate) fn inherit(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfd(fd, FdFlags::empty())?)
}

pub(crate) fn number(fd: &OwnedFd) -> OsString {
    fd.as_raw_fd().to_string().into()
}

/// A pipe, reader first.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// A file in memory with this content.
pub(crate) fn memory_file(name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}

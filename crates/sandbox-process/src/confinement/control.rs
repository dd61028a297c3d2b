//! The control socket of a sandbox: the service asks init for sockets in the sandbox's network, and for a graceful end.
//!
//! A request is three bytes: the operation and a port. The response is one byte, 0 or an error number, with the socket. Only
//! the service reaches the socket: its path is in a directory of the service and does not exist inside.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, bind, connect, listen, recvmsg,
    sendmsg, socket_with, sockopt,
};
use tokio::io::Interest;
use tokio::time::timeout;

use crate::confinement::plan::CALLBACK_ADDRESS;
use crate::files::if_exists;

/// Descriptors in one message.
const MAX_DESCRIPTORS: usize = 8;
/// Init does nothing that waits, but may have to wait for a processor.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections of the agent server that wait for the service.
const CALLBACK_BACKLOG: i32 = 128;

/// What the service asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControlRequest {
    /// A socket that connects to this port of 127.0.0.1 inside.
    Connect(u16),
    /// A socket that listens on this port of [`CALLBACK_ADDRESS`] inside.
    Listen(u16),
    /// Sends `SIGTERM` to the agent server.
    Terminate,
}

impl ControlRequest {
    fn encode(self) -> [u8; 3] {
        let (operation, port) = match self {
            Self::Connect(port) => (b'c', port),
            Self::Listen(port) => (b'l', port),
            Self::Terminate => (b't', 0),
        };
        let [high, low] = port.to_be_bytes();
        [operation, high, low]
    }

    pub(crate) fn decode([operation, high, low]: [u8; 3]) -> Option<Self> {
        let port = u16::from_be_bytes([high, low]);
        match operation {
            b'c' => Some(Self::Connect(port)),
            b'l' => Some(Self::Listen(port)),
            b't' => Some(Self::Terminate),
            _ => None,
        }
    }
}

/// Connects to a port in the sandbox's network. `None` without a control socket: the sandbox is not confined.
pub(crate) async fn connect_to(
    control: &Path,
    port: u16,
) -> io::Result<Option<tokio::net::TcpStream>> {
    let Some(fds) = request(control, ControlRequest::Connect(port)).await? else {
        return Ok(None);
    };
    let stream = TcpStream::from(tcp(fds)?);
    stream.set_nonblocking(true)?;
    let stream = tokio::net::TcpStream::from_std(stream)?;
    // The connection may be in progress.
    stream.writable().await?;
    established(&stream)?;
    Ok(Some(stream))
}

/// Fails unless a finished attempt has connected the socket to another one.
fn established(stream: &tokio::net::TcpStream) -> io::Result<()> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    // Without a listener the kernel may choose the port itself as the source, and connect the socket to itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(())
}

/// A listening socket at [`CALLBACK_ADDRESS`] in the sandbox's network. `None` as above.
pub(crate) async fn listen_at(
    control: &Path,
    port: u16,
) -> io::Result<Option<tokio::net::TcpListener>> {
    let Some(fds) = request(control, ControlRequest::Listen(port)).await? else {
        return Ok(None);
    };
    let listener = TcpListener::from(tcp(fds)?);
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener).map(Some)
}

/// Lets init end the agent server. `false` as above.
pub(crate) async fn terminate(control: &Path) -> io::Result<bool> {
    let sent = request(control, ControlRequest::Terminate).await?;
    Ok(sent.is_some())
}

/// The only descriptor of a response, if it is a TCP socket.
fn tcp(mut fds: Vec<OwnedFd>) -> io::Result<OwnedFd> {
    let is_tcp = |fd: &OwnedFd| {
        sockopt::socket_type(fd) == Ok(SocketType::STREAM)
            && sockopt::socket_domain(fd) == Ok(AddressFamily::INET)
    };
    fds.pop().filter(is_tcp).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the sandbox's init sent no TCP socket",
        )
    })
}

/// Returns the socket that init sends, if any. `None`: there is no control socket.
async fn request(control: &Path, request: ControlRequest) -> io::Result<Option<Vec<OwnedFd>>> {
    let exchange = async {
        let connected = tokio::net::UnixStream::connect(control).await;
        let Some(stream) = if_exists(connected)? else {
            return Ok(None);
        };
        let sent = || {
            Ok(rustix::net::send(
                &stream,
                &request.encode(),
                SendFlags::NOSIGNAL,
            )?)
        };
        stream.async_io(Interest::WRITABLE, sent).await?;
        let (status, fds) = stream
            .async_io(Interest::READABLE, || receive(&stream))
            .await?;
        if status != 0 {
            return Err(io::Error::from_raw_os_error(status.into()));
        }
        Ok(Some(fds))
    };
    timeout(RESPONSE_TIMEOUT, exchange).await?
}

/// The listening sockets that init has made, by port. Init keeps them: while no service holds one, connections wait.
pub(crate) type Listeners = BTreeMap<u16, OwnedFd>;

/// Responds to a request in init. The operation `Terminate` is done by the caller.
pub(crate) fn respond(
    stream: &UnixStream,
    request: ControlRequest,
    listeners: &mut Listeners,
) -> io::Result<()> {
    let connection;
    let socket = match request {
        ControlRequest::Connect(port) => match start_connection(port) {
            Ok(socket) => {
                connection = socket;
                Ok(Some(connection.as_fd()))
            }
            Err(error) => Err(error),
        },
        ControlRequest::Listen(port) => listener(port, listeners).map(Some),
        ControlRequest::Terminate => Ok(None),
    };
    match socket {
        Ok(socket) => send(stream, 0, &socket.into_iter().collect::<Vec<_>>()),
        Err(error) => send(
            stream,
            u8::try_from(error.raw_os_error()).unwrap_or(u8::MAX),
            &[],
        ),
    }
}

/// The service waits for the result, because init must not.
fn start_connection(port: u16) -> Result<OwnedFd, Errno> {
    let socket = tcp_socket()?;
    match connect(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

fn listener(port: u16, listeners: &mut Listeners) -> Result<BorrowedFd<'_>, Errno> {
    let kept: &OwnedFd = match listeners.entry(port) {
        Entry::Occupied(kept) => kept.into_mut(),
        Entry::Vacant(free) => free.insert(open_listener(port)?),
    };
    Ok(kept.as_fd())
}

fn open_listener(port: u16) -> Result<OwnedFd, Errno> {
    let socket = tcp_socket()?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::from((CALLBACK_ADDRESS, port)))?;
    listen(&socket, CALLBACK_BACKLOG)?;
    Ok(socket)
}

fn tcp_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
}

/// Sends a byte with descriptors.
pub(crate) fn send(stream: &UnixStream, status: u8, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::from(Errno::MSGSIZE));
    }
    sendmsg(
        stream,
        &[IoSlice::new(&[status])],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives what [`send`] sent.
pub(crate) fn receive(stream: impl AsFd) -> io::Result<(u8, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut status = [0];
    let message = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut status)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if message.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((status[0], fds.flatten().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_is_connected_to_itself_is_refused() {
        let socket = tcp_socket().unwrap();
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let stream = TcpStream::from(socket);
        let own = stream.local_addr().unwrap();
        assert!(matches!(
            connect(&stream, &own),
            Ok(()) | Err(Errno::INPROGRESS)
        ));
        let stream = tokio::net::TcpStream::from_std(stream).unwrap();
        stream.writable().await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), own, "it is connected");
        let refused = established(&stream).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}

//! A git provider that quotes every request, its token included, in errors.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Serves until it is dropped.
pub(crate) struct FakeProvider {
    pub(crate) url: String,
    _task: JoinSet<()>,
}

impl FakeProvider {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port is free");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let mut task = JoinSet::new();
        task.spawn(async move {
            for number in 0_usize.. {
                let Ok((mut socket, _)) = listener.accept().await else {
                    break;
                };
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    if socket.read_buf(&mut head).await.unwrap_or(0) == 0 {
                        break;
                    }
                }
                let quoted = serde_json::json!({"message": String::from_utf8_lossy(&head)}).to_string();
                let statuses = ["500 Oops", "401 Unauthorized", "403 Forbidden", "422 No"];
                let status = statuses[number % statuses.len()];
                let length = quoted.len();
                let response = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{quoted}"
                );
                // The client may have disconnected.
                let _ = socket.write_all(response.as_bytes()).await;
            }
        });
        Self {
            url: format!("http://{address}"),
            _task: task,
        }
    }
}

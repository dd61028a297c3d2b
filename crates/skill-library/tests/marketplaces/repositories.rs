//! Marketplaces in repositories that `git http-backend` serves on this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;

use domain::skill::{
    ListedSkill, Marketplace, MarketplaceContents, MarketplacePlugin, SkillError, SkillLibrary as _,
};
use skill_library::{Config, DirectoryLibrary};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

/// A served repository, and a library.
struct MarketplaceFixture {
    directory: TempDir,
    at: SocketAddr,
    library: DirectoryLibrary,
    _server: JoinSet<()>,
}

impl MarketplaceFixture {
    /// A repository with these files on its branch `main`.
    async fn with(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let work = directory.path().join("work");
        for (path, text) in files {
            let path = work.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        for arguments in [
            &["init", "--quiet", "--initial-branch=main"][..],
            &["add", "."],
            &[
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@example.org",
                "commit",
                "--quiet",
                "-m",
                "x",
            ],
            &["tag", "v1"],
            &["clone", "--quiet", "--bare", ".", "../served/r.git"],
        ] {
            git(&work, arguments).await;
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let root = directory.path().join("served");
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut requests = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let root = root.clone();
                requests.spawn(async move { serve(stream, &root).await });
            }
        });
        let library = DirectoryLibrary::new(Config {
            global: Vec::new(),
            user: directory.path().join("skills"),
            scratch: directory.path().join("scratch"),
            ca_file: None,
        });
        Self {
            directory,
            at,
            library,
            _server: server,
        }
    }

    fn marketplace(&self) -> Marketplace {
        Marketplace {
            name: "team".to_owned(),
            // The name does not resolve, so only the addresses matter.
            url: format!("http://git.invalid:{}/r.git", self.at.port())
                .parse()
                .unwrap(),
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            reference: None,
            repo_path: None,
        }
    }

    async fn offer(&self, of: &Marketplace) -> Result<MarketplaceContents, SkillError> {
        self.library.read_marketplace(of).await
    }

    /// Waits until no fetched repository is left; returns their number after a timeout.
    async fn count_scratch_entries(&self) -> usize {
        let scratch = self.directory.path().join("scratch");
        for _ in 0..1_000 {
            if std::fs::read_dir(&scratch).unwrap().count() == 0 {
                return 0;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        std::fs::read_dir(&scratch).unwrap().count()
    }
}

async fn git(directory: &Path, arguments: &[&str]) {
    let ended = Command::new("git")
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .status();
    assert!(
        ended.await.expect("git can be run").success(),
        "git {arguments:?}"
    );
}

/// Serves one request by `git http-backend`, a CGI program.
async fn serve(stream: TcpStream, root: &Path) {
    let mut stream = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return;
        }
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        let found = lines.iter().filter_map(|line| line.split_once(": "));
        let mut found = found.filter(|(given, _)| given.eq_ignore_ascii_case(name));
        found
            .next()
            .map_or(String::new(), |(_, value)| value.to_owned())
    };
    let mut words = lines[0].split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let length = header("content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", length.to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("git can be run");
    child.stdin.take().unwrap().write_all(&body).await.unwrap();
    let output = child.wait_with_output().await.unwrap().stdout;
    let status = b"HTTP/1.1 200 OK\r\nConnection: close\r\n";
    let _ = stream
        .write_all(&[status, output.as_slice()].concat())
        .await;
    let _ = stream.shutdown().await;
}

fn skill(name: &str, triggers: &[&str]) -> ListedSkill {
    let triggers: Vec<_> = triggers.iter().map(ToString::to_string).collect();
    ListedSkill {
        name: name.to_owned(),
        kind: "knowledge".to_owned(),
        source: "marketplace:team".to_owned(),
        triggers: (!triggers.is_empty()).then_some(triggers),
    }
}

#[tokio::test]
async fn skills_of_a_repository_without_a_manifest_are_listed() {
    let fixture = MarketplaceFixture::with(&[
        ("README.md", "---\nname: readme\n---\n"),
        ("skills/git.md", "---\ntriggers: [git, hub]\n---\nText"),
        ("skills/pdf/SKILL.md", "---\ndescription: x\n---\n"),
        ("skills/pdf/more.md", "---\nname: more\n---\n"),
        ("skills/broken.md", "---\nname: {\n---\n"),
        (".skills/hidden.md", "---\nname: hidden\n---\n"),
        ("deep/er/skills/own.md", "---\nname: own\n---\n"),
    ])
    .await;
    let of = fixture.marketplace();
    let all = MarketplaceContents {
        skills: vec![
            skill("git", &["git", "hub"]),
            skill("hidden", &[]),
            skill("pdf", &[]),
        ],
        plugins: Vec::new(),
    };
    assert_eq!(fixture.offer(&of).await.unwrap(), all);
    for reference in ["main", "v1"] {
        let of = Marketplace {
            reference: Some(reference.to_owned()),
            ..of.clone()
        };
        assert_eq!(fixture.offer(&of).await.unwrap(), all, "{reference}");
    }
    let below = Marketplace {
        repo_path: Some("./deep//er/".to_owned()),
        ..of.clone()
    };
    assert_eq!(
        fixture.offer(&below).await.unwrap().skills,
        [skill("own", &[])]
    );
    assert_eq!(fixture.count_scratch_entries().await, 0);
}

#[tokio::test]
async fn a_manifest_determines_the_lists() {
    let manifest = r#"{"name": "m", "plugins": [{"name": "deploy", "source": "./p", "description": "D"}],
        "skills": [{"name": "solo", "source": "./s"}]}"#;
    let fixture = MarketplaceFixture::with(&[
        (".claude-plugin/marketplace.json", manifest),
        (
            "skills/skills_without_manifest.md",
            "---\nname: skills_without_manifest\n---\n",
        ),
        ("bad/.plugin/marketplace.json", "{"),
    ])
    .await;
    let of = fixture.marketplace();
    let plugin = MarketplacePlugin {
        name: "deploy".to_owned(),
        description: Some("D".to_owned()),
    };
    let expected = MarketplaceContents {
        skills: vec![skill("solo", &[])],
        plugins: vec![plugin],
    };
    assert_eq!(fixture.offer(&of).await.unwrap(), expected);
    let bad = Marketplace {
        repo_path: Some("bad".to_owned()),
        ..of
    };
    let error = fixture.offer(&bad).await.unwrap_err().to_string();
    assert_eq!(error, "its manifest is not JSON");
}

#[tokio::test]
async fn errors_of_fetches_contain_no_paths_and_addresses() {
    let fixture = MarketplaceFixture::with(&[("skills/a.md", "---\n---\n")]).await;
    let of = fixture.marketplace();
    let missing = Marketplace {
        url: of.url.join("/other.git").unwrap(),
        ..of.clone()
    };
    let no_branch = Marketplace {
        reference: Some("nowhere".to_owned()),
        ..of.clone()
    };
    let no_path = Marketplace {
        repo_path: Some("nowhere".to_owned()),
        ..of.clone()
    };
    let elsewhere = Marketplace {
        addresses: vec!["127.0.0.9".parse().unwrap()],
        ..of
    };
    for (of, word) in [
        (missing, "cannot be fetched"),
        (no_branch, "cannot be fetched"),
        (elsewhere, "cannot be fetched"),
        (no_path, "no such directory"),
    ] {
        let error = fixture.offer(&of).await.unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert!(
            !error.contains(fixture.directory.path().to_str().unwrap()),
            "{error}"
        );
        assert!(!error.contains("127.0.0"), "{error}");
    }
    assert_eq!(fixture.count_scratch_entries().await, 0);
}

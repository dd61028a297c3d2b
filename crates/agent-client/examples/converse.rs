//! Runs whole conversations on a running agent server: `converse URL KEY LLM_URL [DIR]`.
//!
//! It needs the scripted model of the package `acceptance` (`cargo run -p acceptance --bin scripted-llm`). It starts a
//! conversation that writes a file, sends another message, reads the log, deletes the conversation, and interrupts a slow run.
//! It prints its observations and fails at the first unexpected one. `DIR` is the directory in which the sandbox works
//! (default: below the temporary directory); the example checks files only if `DIR` is on this machine.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_client::{Config, HttpAgentRuntime};
use domain::agent::{
    AgentConversationReader, AgentEndpoint, AgentLifecycle, AgentRuntime, CondenserConfig,
    LaunchRequest, LaunchSecret, LlmConfig, McpServer,
};
use domain::clock::SystemClock;
use domain::conversation::{ExecutionStatus, MessageInput};
use domain::id::ConversationId;
use domain::start_task::AgentType;
use endpoint_guard::Unguarded;
use secrecy::SecretString;
use serde_json::{Map, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Example {
    runtime: HttpAgentRuntime,
    at: AgentEndpoint,
    llm_url: String,
    dir: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let usage = "converse URL KEY LLM_URL [DIR]";
    let url = args.next().ok_or(usage)?.parse()?;
    let key = SecretString::from(args.next().ok_or(usage)?);
    let llm_url = args.next().ok_or(usage)?;
    let dir = args
        .next()
        .unwrap_or_else(|| format!("{}/converse", std::env::temp_dir().display()));
    let runtime = HttpAgentRuntime::new(
        Config::default(),
        Arc::new(SystemClock),
        Arc::new(Unguarded),
    );
    let example = Example {
        runtime,
        at: AgentEndpoint {
            sandbox: "any".parse()?,
            url,
            key,
        },
        llm_url,
        dir,
    };

    print(&format!(
        "alive: {}",
        example
            .runtime
            .is_alive(&example.at.sandbox, &example.at.url)
            .await
    ))?;
    print(&format!(
        "version: {}",
        example.runtime.version(&example.at).await?
    ))?;
    example.write_a_file(AgentType::Default).await?;
    example.interrupt_a_slow_run().await?;
    example.plan().await
}

impl Example {
    async fn write_a_file(&self, agent_type: AgentType) -> Outcome<()> {
        let mut request = self.request("openai/scripted", agent_type);
        request.initial_message = Some(message("RUN: echo $GREETING > hello.txt"));
        let id = request.conversation_id;
        let started = Instant::now();
        let info = self.runtime.start(&self.at, &request).await?;
        print(&format!(
            "started in {:?}: {:?}",
            started.elapsed(),
            info.execution_status
        ))?;
        self.wait(id, ExecutionStatus::Finished).await?;
        self.check(id, "hello.txt")?;

        let again = self.runtime.start(&self.at, &request).await?;
        print(&format!("started again: {:?}", again.execution_status))?;
        let sent = self
            .runtime
            .send(&self.at, id, &message("RUN: echo 2 > second.txt"))
            .await?;
        print(&format!("second message: {sent:?}"))?;
        self.wait(id, ExecutionStatus::Finished).await?;
        self.check(id, "second.txt")?;

        self.read_back(id).await?;
        self.runtime.delete_conversation(&self.at, id).await?;
        self.runtime.delete_conversation(&self.at, id).await?;
        let gone = self.runtime.snapshot_many(&self.at, &[id]).await?;
        expect(gone == [None], "a deleted conversation is gone")?;
        let lost = self.runtime.send(&self.at, id, &message("x")).await;
        print(&format!(
            "message to a deleted conversation: {}",
            lost.expect_err("not there")
        ))
    }

    /// Reads the whole log page by page, then only the events from a given one on.
    async fn read_back(&self, id: ConversationId) -> Outcome<()> {
        let total = self.runtime.count_events(&self.at, id).await?;
        let mut page = self.runtime.events(&self.at, id, None, None).await?;
        let mut log = page.items;
        while let Some(cursor) = page.next {
            page = self
                .runtime
                .events(&self.at, id, None, Some(&cursor))
                .await?;
            log.extend(page.items);
        }
        expect(u64::try_from(log.len())? == total, "the log is complete")?;
        let kinds: Vec<_> = log.iter().map(|e| e.kind.as_str()).collect();
        print(&format!("log of {total}: {kinds:?}"))?;
        let fourth = &log[3];
        let tail = self
            .runtime
            .events(&self.at, id, None, Some(fourth.id.as_str()))
            .await?;
        expect(
            tail.items == log[3..],
            "an event id is a cursor that includes its event",
        )?;
        let later = self
            .runtime
            .events(&self.at, id, Some(fourth.timestamp), None)
            .await?;
        print(&format!(
            "from the fourth event's time on: {}",
            later.items.len()
        ))
    }

    async fn interrupt_a_slow_run(&self) -> Outcome<()> {
        let mut request = self.request("openai/slow-10000", AgentType::Default);
        request.auto_title = false;
        request.initial_message = Some(message("RUN: true"));
        let id = request.conversation_id;
        self.runtime.start(&self.at, &request).await?;
        self.wait(id, ExecutionStatus::Running).await?;
        let started = Instant::now();
        self.runtime.interrupt(&self.at, id).await?;
        self.wait(id, ExecutionStatus::Paused).await?;
        print(&format!("interrupted after {:?}", started.elapsed()))?;
        self.runtime.interrupt(&self.at, id).await?;
        self.runtime.delete_conversation(&self.at, id).await?;
        let lost = self
            .runtime
            .interrupt(&self.at, id)
            .await
            .expect_err("not there");
        print(&format!("interrupt of a deleted conversation: {lost}"))
    }

    async fn plan(&self) -> Outcome<()> {
        let mut request = self.request("openai/scripted", AgentType::Plan);
        request.mcp = vec![McpServer::Stdio {
            name: "broken".to_owned(),
            command: "/nonexistent/mcp".to_owned(),
            args: vec![],
            env: BTreeMap::new(),
        }];
        request.search_api_key = Some(SecretString::from("tvly-not-a-key"));
        request.initial_message = Some(message("make a plan"));
        let started = Instant::now();
        self.runtime.start(&self.at, &request).await?;
        self.wait(request.conversation_id, ExecutionStatus::Finished)
            .await?;
        print(&format!(
            "planned despite a broken MCP server in {:?}",
            started.elapsed()
        ))?;
        Ok(self
            .runtime
            .delete_conversation(&self.at, request.conversation_id)
            .await?)
    }

    fn request(&self, model: &str, agent_type: AgentType) -> LaunchRequest {
        #[expect(clippy::disallowed_methods, reason = "an example has no id generator")]
        let conversation_id = ConversationId::new(uuid::Uuid::new_v4());
        let llm = LlmConfig {
            model: model.to_owned(),
            base_url: Some(self.llm_url.clone()),
            api_key: Some(SecretString::from("sk-scripted")),
            options: Map::new(),
            secret_options: BTreeMap::new(),
        };
        let greeting = (
            "GREETING".to_owned(),
            LaunchSecret::Value(SecretString::from("hello-from-a-secret")),
        );
        LaunchRequest {
            conversation_id,
            working_dir: format!("{}/{conversation_id}", self.dir),
            llm,
            condenser: Some(CondenserConfig {
                max_size: 240,
                keep_first: 2,
            }),
            max_iterations: Some(100),
            confirmation_mode: false,
            security_analyzer: Some("llm".to_owned()),
            mcp: vec![],
            search_api_key: None,
            system_message_suffix: Some("Be brief.".to_owned()),
            initial_message: None,
            secrets: BTreeMap::from([greeting]),
            auto_title: true,
            agent_type,
            tools: None,
            sub_agents: false,
            plan_path: None,
            acp: None,
            plugins: Vec::new(),
            hooks: None,
            disabled_skills: Vec::new(),
            title_profile: None,
            tags: BTreeMap::from([("origin".to_owned(), "converse".to_owned())]),
            max_budget: None,
        }
    }

    async fn wait(&self, id: ConversationId, wanted: ExecutionStatus) -> Outcome<()> {
        let started = Instant::now();
        loop {
            let seen = self.runtime.snapshot_many(&self.at, &[id]).await?;
            let info = seen[0].as_ref().ok_or("the conversation vanished")?;
            if info.execution_status == Some(wanted) {
                let metrics = info.metrics.as_ref().map(|m| m.prompt_tokens);
                let (title, model) = (&info.title, &info.llm_model);
                return print(&format!(
                    "{wanted:?} after {:?}: title {title:?}, model {model:?}, prompt tokens {metrics:?}",
                    started.elapsed()
                ));
            }
            expect(
                started.elapsed() < Duration::from_secs(60),
                &format!(
                    "{wanted:?} within a minute, not {:?}",
                    info.execution_status
                ),
            )?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn check(&self, id: ConversationId, name: &str) -> Outcome<()> {
        let dir = format!("{}/{id}", self.dir);
        if Path::new(&dir).is_dir() {
            let text = std::fs::read_to_string(format!("{dir}/{name}"))?;
            print(&format!("{name}: {text:?}"))?;
        }
        Ok(())
    }
}

fn message(text: &str) -> MessageInput {
    MessageInput {
        role: "user".to_owned(),
        content: vec![json!({"type": "text", "text": text})],
        run: true,
    }
}

fn expect(holds: bool, what: &str) -> Outcome<()> {
    if holds {
        Ok(())
    } else {
        Err(format!("expected: {what}").into())
    }
}

fn print(text: &str) -> Outcome<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

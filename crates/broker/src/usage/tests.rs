use super::*;

const SSE: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";

/// Answers as the providers send them, shortened: content type, body, model, tokens.
const ANSWERS: [(&str, &str, &str, [u64; 4]); 8] = [
    (
        JSON,
        r#"{"id":"chatcmpl-1","object":"chat.completion","model":"gpt-5-2025-08-07","choices":[{"index":0,"message":
        {"role":"assistant","content":"{\"usage\":{\"prompt_tokens\":9}} \\","model":"no"},"usage":{"prompt_tokens":7}}],
        "usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":64,
        "audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":8}},"service_tier":"default"}"#,
        "gpt-5-2025-08-07",
        [36, 64, 0, 20],
    ),
    (
        SSE,
        "data: {\"id\":\"c\",\"model\":\"gpt-5\",\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\n\
         data: {\"id\":\"c\",\"model\":\"gpt-5\",\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":2}}\n\n\
         data: [DONE]\n\n",
        "gpt-5",
        [11, 0, 0, 2],
    ),
    (
        SSE,
        "event: response.created\r\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"model\":\"gpt-5\",\
         \"usage\":null}}\r\n\r\nevent: response.completed\r\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\
         \"gpt-5\",\"output\":[{\"usage\":{\"input_tokens\":5}}],\"usage\":{\"input_tokens\":50,\"input_tokens_details\":\
         {\"cached_tokens\":10},\"output_tokens\":7}}}\r\n\r\n",
        "gpt-5",
        [40, 10, 0, 7],
    ),
    (
        SSE,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"claude-sonnet-4-5\",\
         \"content\":[],\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":300,\"cache_read_input_tokens\":4000,\
         \"output_tokens\":1}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\
         \"usage\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\
         \"usage\":{\"output_tokens\":15}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        "claude-sonnet-4-5",
        [25, 4_000, 300, 15],
    ),
    (
        JSON,
        r#"{"id":"msg","type":"message","model":"claude-opus-4-5","content":[{"type":"tool_use","input":{"usage":
        {"input_tokens":1},"model":"no"}}],"usage":{"input_tokens":3,"output_tokens":4,"service_tier":"standard"}}"#,
        "claude-opus-4-5",
        [3, 0, 0, 4],
    ),
    (
        JSON,
        r#"{"model" : "mistral-large" , "usage" : { "prompt_tokens" : 1 , "completion_tokens" : 2 }}"#,
        "mistral-large",
        [1, 0, 0, 2],
    ),
    (
        JSON,
        r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"{\"usageMetadata\":1}"}]},"finishReason":"STOP"}],
        "usageMetadata":{"promptTokenCount":90,"candidatesTokenCount":5,"totalTokenCount":107,"cachedContentTokenCount":40,
        "thoughtsTokenCount":12,"promptTokensDetails":[{"modality":"TEXT","tokenCount":90}]},
        "modelVersion":"gemini-2.5-pro","responseId":"r"}"#,
        "gemini-2.5-pro",
        [50, 40, 0, 17],
    ),
    (
        SSE,
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}],\"usageMetadata\":{\"promptTokenCount\":8,\
         \"totalTokenCount\":8},\"modelVersion\":\"gemini-2.5-flash\"}\r\n\r\ndata: {\"candidates\":[],\"usageMetadata\":\
         {\"promptTokenCount\":8,\"candidatesTokenCount\":3},\"modelVersion\":\"gemini-2.5-flash\"}\r\n\r\n",
        "gemini-2.5-flash",
        [8, 0, 0, 3],
    ),
];

fn scanned(content_type: &str, chunks: impl Iterator<Item = impl AsRef<[u8]>>) -> UsageScanner {
    let mut scanner = UsageScanner::new(content_type);
    for chunk in chunks {
        scanner.read(chunk.as_ref());
    }
    scanner
}

#[test]
fn counts_are_found_wherever_the_chunks_end() {
    for (kind, body, model, [input, cached_input, cache_write, output]) in ANSWERS {
        let tokens = TokenCounts {
            input,
            cached_input,
            cache_write,
            output,
        };
        for size in [1, 2, 3, 7, 64, body.len()] {
            let found = scanned(kind, body.as_bytes().chunks(size));
            assert_eq!(found.model(), Some(model), "{body} in {size}");
            assert_eq!(found.tokens(), Some(tokens), "{body} in {size}");
        }
        for cut in 0..body.len() {
            let halves = [&body.as_bytes()[..cut], &body.as_bytes()[cut..]];
            assert_eq!(
                scanned(kind, halves.into_iter()).tokens(),
                Some(tokens),
                "{cut}"
            );
        }
    }
}

#[test]
fn other_answers_have_no_counts() {
    let long = format!(
        r#"{{"usage":{{"x":"{}","prompt_tokens":1}}}}"#,
        "x".repeat(20_000)
    );
    for body in [
        "",
        "[]",
        "null",
        "}}}}",
        "]]]][[[[{{{{",
        r#"{"usage":"#,
        r#"{"usage":{"prompt_tokens":1"#,
        r#"{"usage":{"prompt_tokens":-1}}"#,
        r#"{"usage":{"prompt_tokens":"many"}}"#,
        r#"{"usage":{"total":1}}"#,
        r#"{"a":{"usage":{"prompt_tokens":1}}}"#,
        r#"[{"usage":{"prompt_tokens":1}}]"#,
        r#"["usage",{"prompt_tokens":1}]"#,
        r#"{"content":"\"usage\":{\"prompt_tokens\":1}"}"#,
        long.as_str(),
    ] {
        let found = scanned(JSON, [body].into_iter());
        assert_eq!(found.tokens(), None, "{body}");
    }
    let unlabelled = scanned(SSE, [r#"{"usage":{"prompt_tokens":1}}"#].into_iter());
    assert_eq!(unlabelled.tokens(), None);
}

#[test]
fn nothing_grows_with_the_answer() {
    let mut scanner = UsageScanner::new(JSON);
    scanner.read(br#"{"usage":{"#);
    for _ in 0..1_000 {
        scanner.read(&[b'['; 1_000]);
        scanner.read(br#""name that is longer than any":"#);
    }
    assert!(scanner.document.kept.is_none());
    assert!(scanner.document.name.capacity() < 100);
}

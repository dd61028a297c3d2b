//! Test harness of the black-box suites.

pub mod scripted_llm;

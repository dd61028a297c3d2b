//! Types, ports and errors of agent-workspace.

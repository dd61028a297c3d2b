//! The gateway between a client and a server that are both scripted, byte by byte.

mod bodies;
mod failures;
mod tunnels;
mod world;

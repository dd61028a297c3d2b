//! The web application at `/`: a package of the npm registry that this service installs and serves unmodified.
//!
//! **Knows** the package, how to install a build of it, its paths, and the policy under which a browser may run it.
//! **Must never know** routes, users or sessions: `http-api` sends the responses, `server` decides when there are any.
//!
//! ```text
//!   registry or file ──► InstalledBuild (a directory) ──► WebApp (memory) ──► WebAppSlot, which requests read
//! ```
//!
//! `docs/how-to/use-the-web-application.md` describes it for operators.

mod download;
mod error;
mod files;
mod install;
mod package;
mod page;
mod paths;
mod slot;
mod unpack;

pub use download::InstallProgress;
pub use error::WebAppError;
pub use files::{WebApp, WebFile};
pub use install::{InstallSource, Installer};
pub use package::Package;
pub use page::{IndexPage, PageOrigins, RenderedPage};
pub use paths::PathUse;
pub use slot::{WebAppSlot, WebAppStatus};

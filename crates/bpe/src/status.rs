//! `bpe status`.
use std::process::ExitCode;

use crate::{connection, server::Server};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: connection::Args,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut server = Server::connect(&args.connection)?;
    println!("{:?}", crate::process::Process::find(&mut server));
    anyhow::bail!("not built yet {}", server.version)
}

use std::process::ExitCode;

fn main() -> ExitCode {
    steadfast::shell::main()
}

fn main() -> std::process::ExitCode {
    pagefold::cli::start_with(theirs::policy)
}

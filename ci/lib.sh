# For the scripts of this folder: steps with their durations. Sourced, by bash.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# step TITLE COMMAND.. runs the command and says how long it took; the first that fails ends the script.
step() {
    local title=$1 begun=$SECONDS
    shift
    echo "== $title: $*"
    if "$@"; then
        echo "== $title: ok, $((SECONDS - begun)) s"
    else
        local status=$?
        echo "== $title: FAILED with status $status, $((SECONDS - begun)) s" >&2
        exit "$status"
    fi
}

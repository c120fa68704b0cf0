#!/usr/bin/env bash
# Looks for what the build needs and cannot bring along itself. Each problem is one line on stderr that
# says what is missing and how to get it.
#
#   scripts/prerequisites.sh python   prints the path of a Python that will do ($PYTHON is tried first)
#   scripts/prerequisites.sh rust     cargo, rustc and a C compiler
#   scripts/prerequisites.sh java     a JDK and Maven, for the tests against RocketMQ's own jars
#   scripts/prerequisites.sh browser  prints the path of a Chromium ($CHROMIUM is tried first), for the report's tests
#   scripts/prerequisites.sh get-browser  the same, and installs one first where apt-get as root can
set -euo pipefail
cd "$(dirname "$0")/.."

readonly python_needed=3.11 java_needed=17 maven_needed=3.6

fail() {
    printf 'mqstore: %s\n' "$*" >&2
    exit 1
}

# Is version $1 at least version $2? Compared number by number; `sort -V` is not everywhere.
at_least() {
    local -a have need
    IFS=.- read -ra have <<<"$1"
    IFS=.- read -ra need <<<"$2"
    local i have_part
    for i in "${!need[@]}"; do
        have_part=${have[i]:-0}
        have_part=${have_part//[!0-9]/}
        ((10#${have_part:-0} > 10#${need[i]})) && return 0
        ((10#${have_part:-0} < 10#${need[i]})) && return 1
    done
    return 0
}

check_python() {
    local candidate path version found='none was found'
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        path=$(command -v "$candidate" 2>/dev/null) || continue
        version=$("$path" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
        if ! at_least "$version" "$python_needed"; then
            found="$path is $version"
            continue
        fi
        if ! "$path" -c 'import ensurepip, venv' >/dev/null 2>&1; then
            found="$path cannot make virtual environments (on Debian: apt install python3-venv)"
            continue
        fi
        printf '%s\n' "$path"
        return
    done
    fail "Python $python_needed or newer is needed: $found." \
        "Install it (Debian: apt install python3 python3-venv; macOS: brew install python)," \
        "or name one: make PYTHON=/path/to/python3 ..."
}

check_rust() {
    local needed version tool
    needed=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
    for tool in cargo rustc; do
        command -v "$tool" >/dev/null || fail \
            "Rust $needed or newer is needed: no $tool was found. Install it with rustup (https://rustup.rs)."
    done
    version=$(rustc --version | awk '{print $2}')
    at_least "$version" "$needed" || fail \
        "Rust $needed or newer is needed: $(command -v rustc) is $version. Update it: rustup update stable."
    command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || fail \
        "a C compiler is needed to link and for zstd: none was found." \
        "Install it (Debian: apt install build-essential; macOS: xcode-select --install)."
}

check_java() {
    local version get="Install them (Debian: apt install openjdk-17-jdk-headless maven; macOS: brew install openjdk@17 maven)."
    # On macOS a `javac` is always there; without a JDK it only says so, and fails.
    version=$(javac -version 2>&1) || fail \
        "a JDK $java_needed or newer and Maven are needed for the tests against RocketMQ: no JDK was found. $get"
    version=${version#javac }
    at_least "$version" "$java_needed" || fail \
        "a JDK $java_needed or newer is needed for the tests against RocketMQ: $(command -v javac) is $version. $get"
    version=$(mvn --batch-mode --version 2>/dev/null </dev/null || true)
    version=$(sed -n 's/^.*Apache Maven \([0-9.]*\).*/\1/p' <<<"$version")
    [[ -n $version ]] || fail \
        "Maven $maven_needed or newer is needed for the tests against RocketMQ: none was found. $get"
    at_least "$version" "$maven_needed" || fail \
        "Maven $maven_needed or newer is needed for the tests against RocketMQ: $(command -v mvn) is $version. $get"
}

check_browser() {
    local candidate path
    for candidate in ${CHROMIUM:+"$CHROMIUM"} chromium chromium-browser google-chrome google-chrome-stable; do
        path=$(command -v "$candidate" 2>/dev/null) || continue
        printf '%s\n' "$path"
        return
    done
    fail "Chromium is needed for the tests of the report: none was found." \
        "Install it (Debian: apt install chromium; elsewhere Google Chrome will do), or name one: CHROMIUM=/path/to/chromium"
}

get_browser() {
    # In a shell of its own, since it ends the one that it fails in.
    if ! (check_browser) >/dev/null 2>&1 && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
        printf '── Chromium for the tests of the report: apt-get install chromium\n' >&2
        local log
        log=$(mktemp)
        if ! { apt-get update && apt-get install --yes --no-install-recommends chromium; } \
            >"$log" 2>&1 </dev/null; then
            printf 'mqstore: that failed: %s\n' "$(tail -n 1 "$log")" >&2
        fi
        rm -f "$log"
    fi
    check_browser
}

case ${1:-} in
    python | rust | java | browser) "check_$1" ;;
    get-browser) DEBIAN_FRONTEND=noninteractive get_browser ;;
    *) fail "usage: scripts/prerequisites.sh python|rust|java|browser|get-browser" ;;
esac

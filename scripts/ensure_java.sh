#!/usr/bin/env bash
# Spark needs Java 17 or newer. Install it where that takes no question; else say how to get it.
set -euo pipefail

has_java() {
    local java=java version
    [ -z "${JAVA_HOME:-}" ] || java="$JAVA_HOME/bin/java"
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p') || return 1
    [ "${version:-0}" -ge 17 ]
}

install_java() {
    if command -v apt-get >/dev/null; then
        local sudo=""
        [ "$(id -u)" -eq 0 ] || sudo="sudo -n"
        # Debian and Ubuntu differ in which release they carry; any of these will do.
        $sudo apt-get update -qq || true
        for release in 21 17; do
            $sudo apt-get install -y -qq --no-install-recommends "openjdk-$release-jre-headless" && return
        done
    elif command -v brew >/dev/null; then
        brew install --quiet openjdk@17
        echo "Now: export JAVA_HOME=\"$(brew --prefix openjdk@17)/libexec/openjdk.jdk/Contents/Home\""
    fi
}

has_java && exit 0
echo "Java 17 or newer was not found; installing it ..." >&2
install_java >&2 || true
has_java || {
    echo "Deltaic runs on Spark, which needs Java 17 or newer." >&2
    echo "Install a JDK 17 or 21 (https://adoptium.net), put java on the PATH or set JAVA_HOME, and run this again." >&2
    exit 1
}

#!/usr/bin/env bash
# The tests of PostgreSQL sources start a server of their own. Install its programs where that takes no question; else
# say how to get them: those tests are then skipped.
set -euo pipefail

has_postgres() {
    [ -n "${DELTAIC_TEST_POSTGRES:-}" ] && [ -x "$DELTAIC_TEST_POSTGRES/initdb" ] && return
    command -v initdb >/dev/null && command -v postgres >/dev/null && return
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

install_postgres() {
    if command -v apt-get >/dev/null; then
        local sudo=""
        [ "$(id -u)" -eq 0 ] || sudo="sudo -n"
        $sudo apt-get update -qq || true
        # Debian makes and starts a cluster on installation unless told not to; the tests make their own.
        $sudo mkdir -p /etc/postgresql-common/createcluster.d
        echo "create_main_cluster = false" | $sudo tee /etc/postgresql-common/createcluster.d/deltaic-tests.conf >/dev/null
        DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends postgresql
    elif command -v brew >/dev/null; then
        brew install --quiet postgresql@16
        echo "Now: export DELTAIC_TEST_POSTGRES=\"$(brew --prefix postgresql@16)/bin\""
    fi
}

has_postgres && exit 0
echo "PostgreSQL was not found; installing it for the tests ..." >&2
install_postgres >&2 || true
has_postgres || {
    echo "PostgreSQL could not be installed: the tests of PostgreSQL sources will be skipped." >&2
    echo "Install its server (Debian: apt-get install postgresql), or set DELTAIC_TEST_POSTGRES to the folder of initdb." >&2
}

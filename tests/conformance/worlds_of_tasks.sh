# SPDX-License-Identifier: Apache-2.0
#
# worlds_of_tasks.sh: the conformance test of transports between tasks of a launcher. A task runs one world, so each world is
# a start of its own. Sourced. The caller sets $work, a folder, and defines run_tasks <number of ranks>, which ends with an
# exit code that is not 0 if a task fails.
every_world() { # fewest worlds, numbers of ranks...
  local ranks nth rc passed worlds=0
  for ranks in "${@:2}"; do
    for nth in $(seq 0 9); do
      rc=0
      DDHOST_NTH_WORLD=$nth run_tasks "$ranks" >"$work/log" 2>&1 || rc=$?
      passed=$(grep -c '^All tests passed' "$work/log" || true)
      [[ $rc == 0 && $passed == "$ranks" ]] ||
        { cat "$work/log"; echo "FAILED: world $nth: exit code $rc, $passed of $ranks ranks have passed"; exit 1; }
      grep -q "^world $nth of $ranks ranks" "$work/log" || break # there is no such world
      grep '^skipped' "$work/log" || true
      worlds=$((worlds + 1))
    done
  done
  echo "$worlds worlds agree"
  ((worlds >= $1)) || { echo "FAILED: these are too few"; exit 1; }
}

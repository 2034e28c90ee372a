#!/usr/bin/env bash
# The API of `surefoot serve` with curl: start, watch, approve, resolve, cancel. Needs curl and jq.
#
#     surefoot serve examples/notes.py        # in another terminal; needs no key and no network
#     bash examples/curl.sh
#
# Another server: SUREFOOT_URL=https://agents.example SUREFOOT_TOKEN=sft_… bash examples/curl.sh
set -euo pipefail

URL=${SUREFOOT_URL:-http://127.0.0.1:8100}
PIPE=$(mktemp -u)
CURL_CONFIG=$(mktemp)
trap 'rm -f "$PIPE" "$CURL_CONFIG"' EXIT
# The token stands in a file: the words of a command can be read by everybody on the machine.
if [ -n "${SUREFOOT_TOKEN:-}" ]; then echo "header = \"Authorization: Bearer $SUREFOOT_TOKEN\"" > "$CURL_CONFIG"; fi

# What comes back is a document or a problem; --fail-with-body makes a problem the end of this script.
QUIET=(--silent --show-error --fail-with-body --config "$CURL_CONFIG")
api() { curl "${QUIET[@]}" "$@"; }

# post PATH KEY BODY: the key makes it safe to say it again when the answer was lost.
post() {
  api --retry 5 --retry-connrefused -X POST "$URL$1" -H "Idempotency-Key: \"$2\"" \
    -H 'Content-Type: application/json' --data "$3"
}

# watch RUN AFTER TYPE: the events above AFTER as they come, up to one of that type or the end of the run.
# The id of the last one is in $last: who goes on from there, also after a lost connection, misses none.
watch() {
  mkfifo "$PIPE"
  curl "${QUIET[@]}" --no-buffer "$URL/v1/runs/$1/events" -H 'Accept: text/event-stream' -H "Last-Event-ID: $2" > "$PIPE" &
  local stream=$! id='' line type
  while IFS= read -r line; do
    case $line in
      'id: '*) id=${line#id: } ;;
      'data: '*) # Frames without an id are control frames.
        if [ -n "$id" ]; then
          type=$(jq -r .type <<< "${line#data: }")
          echo "  $id $type"
          last=$id
          if [ "$type" = "$3" ]; then kill "$stream" 2> /dev/null || true; break; fi
        fi ;;
      '') id='' ;;
    esac
  done < "$PIPE"
  wait "$stream" 2> /dev/null || true
  rm -f "$PIPE"
}

question() { api "$URL/v1/pending-actions?status=waiting&run_id=$1" | jq -r '.items[0].id'; }

last=0
key=$(date +%s)-$$

echo "== start"
body='{"agent": "writer", "input": "Tell them about the milk.", "metadata": {"from": "curl.sh"}}'
run=$(post /v1/runs "start-$key" "$body" | jq -r .id)
again=$(post /v1/runs "start-$key" "$body" | jq -r .id)
echo "$run (said again: $again)"

echo "== watch, until a person is asked"
watch "$run" 0 action_requested

echo "== approve exactly this"
action=$(question "$run")
shown=$(api "$URL/v1/pending-actions/$action")
jq '{tool_name, arguments, input_hash, expires_at}' <<< "$shown"
decision=$(jq -c '{decision: "approve", reason: "looks right", input_hash}' <<< "$shown")
post "/v1/pending-actions/$action/decision" "approve-$key" "$decision" | jq -r '"\(.decision) by \(.decided_by)"'
# The answer was lost? The same decision under the same key is answered as the first time.
post "/v1/pending-actions/$action/decision" "approve-$key" "$decision" | jq -r '"\(.decision) by \(.decided_by)"'
watch "$run" "$last" run_completed
api "$URL/v1/runs/$run" | jq '{status, result}'

echo "== resolve: a call that may have been sent, and nobody can find out"
unsure=$(post /v1/runs "unsure-$key" '{"agent": "messenger", "input": "Tell them about the milk."}' | jq -r .id)
watch "$unsure" 0 action_requested
action=$(question "$unsure")
post "/v1/pending-actions/$action/decision" "resolve-$key" \
  '{"decision": "happened", "external_resource_id": "note-7", "reason": "they called back"}' | jq -r .decision
watch "$unsure" "$last" run_completed
api "$URL/v1/runs/$unsure" | jq '.steps[] | select(.tool_name) | {tool_name, status, resolution, external_resource_id}'

echo "== cancel: from the answer on nothing is sent"
other=$(post /v1/runs "cancel-$key" "$body" | jq -r .id)
watch "$other" 0 action_requested
api -X POST "$URL/v1/runs/$other/cancel" | jq '{status, may_have_been_sent}'

-- One line for the driver: requests, microseconds, errors, p50 and p99 in microseconds.
function done(summary, latency, requests)
  local e = summary.errors
  local errors = e.connect + e.read + e.write + e.status + e.timeout
  print(string.format("RESULT %d %d %d %d %d", summary.requests, summary.duration, errors,
    latency:percentile(50), latency:percentile(99)))
end

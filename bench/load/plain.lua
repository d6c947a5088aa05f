-- A POST without a key: what a guard lets pass.
wrk.method = "POST"
wrk.path = "/orders"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"item":"book","quantity":1,"customer":"c-1042","note":"none"}'

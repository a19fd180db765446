return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 },
  parallel = { ac { modules = { "output" } }, tile {} },
}

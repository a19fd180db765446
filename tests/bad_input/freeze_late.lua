return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 32 }, mesh = { dp_shard = 2 },
  parallel = { fsdp2 {}, freeze { modules = { "layers.0" } } },
}

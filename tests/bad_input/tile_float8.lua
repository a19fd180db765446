return plan {
  model = require "models.llama" "tiny", cluster = require "clusters.hgx_h200" {}, mesh = { dp_replicate = 8 },
  batch = { global = 8, seq = 64 }, precision = { compute = "bf16" },
  parallel = { float8 { head = true }, ddp {}, tile {} },
}

return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 32 },
  parallel = { freeze { modules = { "layers.*.attention" }, except = { "layers.*.attention.*" } } },
}

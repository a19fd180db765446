-- A freeze{} that names no modules.
return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 32 },
  parallel = { freeze {} },
}

return plan {
  model = require "models.llama" "tiny", runtime = require "runtimes.torchtitn" {},
  batch = { global = 2, seq = 16 },
}

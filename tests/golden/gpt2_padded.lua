-- A vocabulary of 203 tokens: rows of logits have room for 256, and so does the table that the head shares.
return plan {
  model = require "models.gpt2" { size = "tiny", layers = 1, vocab = 203 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 1, seq = 16 },
  parallel = { compile { per = "block" } },
  optimizer = adamw { lr = 1e-3 },
}

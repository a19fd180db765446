-- expect: ok plan-entries 8 | equal
-- Two norms, q, k, v, o, up and down: no gate.
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, activation = "gelu" },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 2 },
}

-- expect: ok local output_head.weight 64,12565 | parameters 6498624 | equal
-- instead: a vocabulary that tp does not divide is split unevenly, with padding that no sum includes
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 1, n_heads = 8, vocab_size = 50257 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 4 },
}

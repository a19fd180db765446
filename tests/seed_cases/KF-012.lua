-- expect: ok mesh ep=2 tp=2 | experts 2 | data 0/2 0/2 1/2 1/2 | equal
-- expect: note[dialect-differs] ranks of ep read samples of their own | 2 times
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 4 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { dp_shard = -1, ep = 2, tp = 2 },
}

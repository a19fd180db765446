-- expect: ok mesh dp_shard=2 ep=2 tp=2 | experts 2 | data 0/4 0/4 1/4 1/4 2/4 2/4 3/4 3/4 | equal
return require "dialects.kempnerforge" {
  world = 8,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 4 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { dp_shard = -1, ep = 2, tp = 2 },
}

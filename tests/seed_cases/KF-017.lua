-- expect: ok mesh pp=2 dp_shard=4 tp=4 | ranks 32
return require "dialects.kempnerforge" {
  world = 32,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, grad_accum_steps = 8 },
  distributed = { pp = 2, dp_shard = 4, tp = 4 },
}

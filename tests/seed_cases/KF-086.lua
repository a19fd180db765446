-- expect: error[pp-layers] 4 | 8
return require "dialects.kempnerforge" {
  world = 8,
  model = { dim = 64, n_layers = 4, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, grad_accum_steps = 8 },
  distributed = { pp = 8 },
}

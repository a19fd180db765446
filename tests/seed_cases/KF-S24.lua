-- expect: note[dialect-differs] ranks of ep read samples of their own | 2 times the sequences
-- expect: ok data 0/4 1/4 2/4 3/4 | start equal | norm 8 eps | equal
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 4 },
  train = { batch_size = 1, seq_len = 64, grad_clip_norm = 0.01 },
  distributed = { dp_shard = 2, ep = 2 },
}

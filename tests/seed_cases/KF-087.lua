-- expect: ok stages 4,4 | holder token_embedding.weight 0 | holder layers.3.attention.wq.weight 0
-- expect: ok holder layers.4.attention.wq.weight 1 | holder layers.7.mlp.down_proj.weight 1
-- expect: ok holder norm.weight 1 | holder output_head.weight 1
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 8, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, grad_accum_steps = 2 },
  distributed = { pp = 2 },
}

-- Web front ends list the conversations that changed last. Their lists contain no sub-conversations.
CREATE INDEX conversations_on_top_by_update ON conversations (owner, updated_at DESC, id DESC) WHERE parent IS NULL;

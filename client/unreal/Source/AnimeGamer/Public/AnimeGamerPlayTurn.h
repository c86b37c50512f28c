#pragma once

#include "AnimeGamerGame.h"
#include "CoreMinimal.h"
#include "Engine/CancellableAsyncAction.h"

#include "AnimeGamerPlayTurn.generated.h"

/** What is known of a turn by now. */
USTRUCT(BlueprintType)
struct FAnimeGamerTurnEvent
{
	GENERATED_BODY()

	/**
	 * What the instruction was taken to mean, from On Understood on; only of bundles that read everyday words. Its Answers at On Error
	 * say why it was refused.
	 */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FAnimeGamerUnderstood Understood;
	/** What it does to the game, from On State on. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FAnimeGamerState State;
	/** How much is computed, 0 to 1, and seconds until all is. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	float Fraction = 0.0f;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	float SecondsLeft = 0.0f;
	/** From On Done on: the game's turns, and the seconds that this one took. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	int32 Turns = 0;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	float Seconds = 0.0f;
	/** Of On Error. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString ErrorCode;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString WhatToDo;
};

/**
 * Of all events of Play Turn: a Blueprint node has the pins of its class's first delegate, and of no other.
 * Texture: the picture, from On Frame on. Turn: its number in the game, 0 until the server has begun it. Index: of the picture in
 * the turn, from 0; -1 before the first. Text: of On Understood, in words for a player; of On Error, what went wrong.
 */
DECLARE_DYNAMIC_MULTICAST_DELEGATE_FiveParams(FAnimeGamerOnPlayTurn, UTexture2D*, Texture, int32, Turn, int32, Index, const FString&, Text, const FAnimeGamerTurnEvent&, Event);

/** The Blueprint node Play Turn. It ends when the clip was shown, or with On Error. */
UCLASS()
class ANIMEGAMER_API UAnimeGamerPlayTurn : public UCancellableAsyncAction
{
	GENERATED_BODY()

public:
	/** Say what happens next in a game, which is opened at its first use. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer",
		meta = (BlueprintInternalUseOnly = "true", WorldContext = "WorldContextObject", DisplayName = "Play Turn"))
	static UAnimeGamerPlayTurn* PlayTurn(UObject* WorldContextObject, FName GameName, const FString& Instruction);

	virtual void Activate() override;
	/** Stop this node's turn, and no other: On Error comes with the code `cancelled`. */
	virtual void Cancel() override;

	UPROPERTY(BlueprintAssignable)
	FAnimeGamerOnPlayTurn OnUnderstood;
	UPROPERTY(BlueprintAssignable)
	FAnimeGamerOnPlayTurn OnState;
	UPROPERTY(BlueprintAssignable)
	FAnimeGamerOnPlayTurn OnProgress;
	UPROPERTY(BlueprintAssignable)
	FAnimeGamerOnPlayTurn OnFrame;
	UPROPERTY(BlueprintAssignable)
	FAnimeGamerOnPlayTurn OnDone;
	UPROPERTY(BlueprintAssignable)
	FAnimeGamerOnPlayTurn OnError;

private:
	UFUNCTION()
	void HandleUnderstood(const FAnimeGamerUnderstood& Understood);
	UFUNCTION()
	void HandleState(const FAnimeGamerState& State);
	UFUNCTION()
	void HandleProgress(float Fraction, float SecondsLeft);
	UFUNCTION()
	void HandleFrame(UTexture2D* Texture, int32 InTurn, int32 Index);
	UFUNCTION()
	void HandleDone(int32 Turns, float Seconds);
	UFUNCTION()
	void HandleError(const FString& Code, const FString& Text, const FString& WhatToDo, const TArray<FAnimeGamerAnswer>& Answers);
	UFUNCTION()
	void HandleClipEnd(int32 InTurn);
	bool IsMine();
	void Tell(const FAnimeGamerOnPlayTurn& Delegate, const FString& Text);
	void End();

	UPROPERTY(Transient)
	TObjectPtr<UAnimeGamerGame> Game;
	UPROPERTY(Transient)
	TObjectPtr<UTexture2D> Picture;
	FAnimeGamerTurnEvent Known;
	FString Sentence;
	int64 Ticket = 0;
	int32 Turn = 0, Shown = -1;
	bool bDone = false, bClipEnded = false;
};

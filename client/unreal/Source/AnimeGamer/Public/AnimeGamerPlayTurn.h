#pragma once

#include "AnimeGamerGame.h"
#include "CoreMinimal.h"
#include "Engine/CancellableAsyncAction.h"

#include "AnimeGamerPlayTurn.generated.h"

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
	/** Stop the turn: On Error comes with the code `cancelled`. */
	virtual void Cancel() override;

	UPROPERTY(BlueprintAssignable)
	FAnimeGamerOnUnderstood OnUnderstood;
	UPROPERTY(BlueprintAssignable)
	FAnimeGamerOnState OnState;
	UPROPERTY(BlueprintAssignable)
	FAnimeGamerOnProgress OnProgress;
	UPROPERTY(BlueprintAssignable)
	FAnimeGamerOnFrame OnFrame;
	UPROPERTY(BlueprintAssignable)
	FAnimeGamerOnDone OnDone;
	UPROPERTY(BlueprintAssignable)
	FAnimeGamerOnError OnError;

private:
	UFUNCTION()
	void HandleUnderstood(const FAnimeGamerUnderstood& Understood);
	UFUNCTION()
	void HandleState(const FAnimeGamerState& State);
	UFUNCTION()
	void HandleProgress(float Fraction, float SecondsLeft);
	UFUNCTION()
	void HandleFrame(UTexture2D* Texture);
	UFUNCTION()
	void HandleDone(int32 Turns, float Seconds);
	UFUNCTION()
	void HandleError(const FString& Code, const FString& Text, const FString& WhatToDo);
	UFUNCTION()
	void HandleClipEnd();
	void End();

	UPROPERTY(Transient)
	TObjectPtr<UAnimeGamerGame> Game;
	FString Sentence;
	int64 Ticket = 0;
	bool bDone = false;
};
